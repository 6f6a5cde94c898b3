// The JavaScript SDK does a real job on the endpoint of the environment; it checks every MD5 by itself.

import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  BatchEntryIdsNotDistinct, CancelMessageMoveTaskCommand, ChangeMessageVisibilityBatchCommand,
  ChangeMessageVisibilityCommand, CreateQueueCommand, DeleteMessageBatchCommand, DeleteMessageCommand,
  DeleteQueueCommand, EmptyBatchRequest, GetQueueAttributesCommand, GetQueueUrlCommand, InvalidAttributeName,
  InvalidMessageContents, ListDeadLetterSourceQueuesCommand, ListMessageMoveTasksCommand, ListQueueTagsCommand,
  PurgeQueueCommand, PurgeQueueInProgress, QueueDoesNotExist, QueueNameExists, ReceiptHandleIsInvalid,
  ReceiveMessageCommand, ResourceNotFoundException, SQSClient, SQSServiceException, SendMessageBatchCommand,
  SendMessageCommand, SetQueueAttributesCommand, StartMessageMoveTaskCommand, TagQueueCommand,
  TooManyEntriesInBatchRequest, UntagQueueCommand, paginateListQueues,
} from '@aws-sdk/client-sqs';
import { check, eventually, fresh, runChecks } from './harness.mjs';

const region = process.env.AWS_DEFAULT_REGION;
const client = new SQSClient({ region, maxAttempts: 1 });
const send = (Command, input) => client.send(new Command(input));

async function queue(Attributes = {}) {
  const QueueName = fresh('node', Attributes.FifoQueue ? '.fifo' : '');
  return (await send(CreateQueueCommand, { QueueName, Attributes })).QueueUrl;
}

async function attribute(QueueUrl, name) {
  const answer = await send(GetQueueAttributesCommand, { QueueUrl, AttributeNames: [name] });
  return answer.Attributes[name];
}

const arn = (url) => attribute(url, 'QueueArn');

async function take(QueueUrl, more = {}) {
  const all = { MessageSystemAttributeNames: ['All'], MessageAttributeNames: ['All'] };
  const answer = await send(ReceiveMessageCommand, { QueueUrl, MaxNumberOfMessages: 10, ...all, ...more });
  return answer.Messages ?? [];
}

async function takeOne(url, more = {}) {
  const messages = await take(url, { MaxNumberOfMessages: 1, WaitTimeSeconds: 10, ...more });
  assert.equal(messages.length, 1);
  return messages[0];
}

const bodies = (messages) => messages.map((message) => message.Body);
const remove = (QueueUrl, { ReceiptHandle }) => send(DeleteMessageCommand, { QueueUrl, ReceiptHandle });

check('queues_and_tags', async () => {
  const stem = fresh('node');
  for (const n of [0, 1, 2]) await send(CreateQueueCommand, { QueueName: `${stem}-${n}`, tags: { team: 'blue' } });
  const pages = [];
  for await (const page of paginateListQueues({ client, pageSize: 2 }, { QueueNamePrefix: stem })) {
    pages.push(page.QueueUrls.length);
  }
  assert.deepEqual(pages, [2, 1]);
  const { QueueUrl } = await send(GetQueueUrlCommand, { QueueName: `${stem}-0` });
  await send(TagQueueCommand, { QueueUrl, Tags: { stage: 'live' } });
  await send(UntagQueueCommand, { QueueUrl, TagKeys: ['team'] });
  assert.deepEqual((await send(ListQueueTagsCommand, { QueueUrl })).Tags, { stage: 'live' });
  await send(SetQueueAttributesCommand, { QueueUrl, Attributes: { VisibilityTimeout: '9' } });
  assert.equal(await attribute(QueueUrl, 'VisibilityTimeout'), '9');
  await send(DeleteQueueCommand, { QueueUrl });
});

check('a_message_arrives_as_it_was_sent', async () => {
  const QueueUrl = await queue();
  const MessageAttributes = {
    Text: { DataType: 'String', StringValue: 'grün' },
    Count: { DataType: 'Number', StringValue: '42' },
    Blob: { DataType: 'Binary', BinaryValue: new Uint8Array([0, 1, 254, 255]) },
  };
  const sent = await send(SendMessageCommand, { QueueUrl, MessageBody: 'hällo 🦀', MessageAttributes });
  const got = await takeOne(QueueUrl);
  assert.equal(got.MessageId, sent.MessageId);
  assert.equal(got.Body, 'hällo 🦀');
  assert.equal(got.MD5OfMessageAttributes, sent.MD5OfMessageAttributes);
  assert.equal(got.MessageAttributes.Text.StringValue, 'grün');
  assert.deepEqual([...got.MessageAttributes.Blob.BinaryValue], [0, 1, 254, 255]);
  await remove(QueueUrl, got);
});

check('the_queue_url_alone_finds_the_node', async () => {
  const QueueUrl = await queue();
  const { AWS_ENDPOINT_URL } = process.env;
  delete process.env.AWS_ENDPOINT_URL;
  const bare = new SQSClient({ region });
  await bare.send(new SendMessageCommand({ QueueUrl, MessageBody: 'found' }));
  process.env.AWS_ENDPOINT_URL = AWS_ENDPOINT_URL;
  assert.equal((await takeOne(QueueUrl)).Body, 'found');
});

check('batches', async () => {
  const QueueUrl = await queue();
  const Entries = Array.from({ length: 10 }, (_, n) => ({ Id: `e${n}`, MessageBody: `body ${n}` }));
  assert.equal((await send(SendMessageBatchCommand, { QueueUrl, Entries })).Successful.length, 10);
  const received = [];
  await eventually(async () => received.push(...await take(QueueUrl)) === 10, 'all ten');
  const handles = received.map(({ ReceiptHandle }, n) => ({ Id: `${n}`, ReceiptHandle }));
  const held = handles.map((entry) => ({ ...entry, VisibilityTimeout: 60 }));
  assert.equal((await send(ChangeMessageVisibilityBatchCommand, { QueueUrl, Entries: held })).Successful.length, 10);
  const bad = { Id: 'bad', ReceiptHandle: 'garbage' };
  const gone = await send(DeleteMessageBatchCommand, { QueueUrl, Entries: [...handles.slice(1), bad] });
  assert.equal(gone.Successful.length, 9);
  assert.deepEqual(gone.Failed.map(({ Id, Code }) => [Id, Code]), [['bad', 'ReceiptHandleIsInvalid']]);
});

check('a_long_poll_waits_and_is_woken', async () => {
  const QueueUrl = await queue();
  const started = Date.now();
  assert.deepEqual(await take(QueueUrl, { WaitTimeSeconds: 1 }), []);
  assert.ok(Date.now() - started >= 950);
  const poll = take(QueueUrl, { WaitTimeSeconds: 20 });
  await sleep(300);
  const sentAt = Date.now();
  await send(SendMessageCommand, { QueueUrl, MessageBody: 'wake' });
  assert.deepEqual(bodies(await poll), ['wake']);
  assert.ok(Date.now() - sentAt < 3000);
});

check('visibility', async () => {
  const QueueUrl = await queue({ VisibilityTimeout: '2' });
  await send(SendMessageCommand, { QueueUrl, MessageBody: 'work' });
  const { ReceiptHandle } = await takeOne(QueueUrl);
  await send(ChangeMessageVisibilityCommand, { QueueUrl, ReceiptHandle, VisibilityTimeout: 5 });
  assert.deepEqual(await take(QueueUrl, { WaitTimeSeconds: 3 }), []);
  await send(ChangeMessageVisibilityCommand, { QueueUrl, ReceiptHandle, VisibilityTimeout: 0 });
  assert.equal((await takeOne(QueueUrl)).Attributes.ApproximateReceiveCount, '2');
  assert.equal((await takeOne(QueueUrl)).Attributes.ApproximateReceiveCount, '3');
});

async function deadLetters(count) {
  const dead = await queue();
  const RedrivePolicy = JSON.stringify({ deadLetterTargetArn: await arn(dead), maxReceiveCount: 1 });
  const url = await queue({ RedrivePolicy });
  for (let n = 0; n < count; n += 1) await send(SendMessageCommand, { QueueUrl: url, MessageBody: `m${n}` });
  await eventually(async () => {
    await take(url, { VisibilityTimeout: 0 });
    return await attribute(dead, 'ApproximateNumberOfMessages') === `${count}`;
  }, 'all are dead letters');
  return { url, dead };
}

check('dead_letters_and_their_move_home', async () => {
  const { url, dead } = await deadLetters(3);
  const sources = await send(ListDeadLetterSourceQueuesCommand, { QueueUrl: dead });
  assert.deepEqual(sources.queueUrls, [url]);
  const got = await takeOne(dead, { VisibilityTimeout: 0 });
  assert.equal(got.Attributes.DeadLetterQueueSourceArn, await arn(url));
  const SourceArn = await arn(dead);
  await send(StartMessageMoveTaskCommand, { SourceArn });
  await eventually(async () => {
    const { Results } = await send(ListMessageMoveTasksCommand, { SourceArn });
    return Results[0].Status === 'COMPLETED' && Results[0].ApproximateNumberOfMessagesMoved === 3;
  }, 'the move completes');
  assert.equal(await attribute(url, 'ApproximateNumberOfMessages'), '3');
});

check('a_slow_move_is_cancelled', async () => {
  const { dead } = await deadLetters(5);
  const SourceArn = await arn(dead);
  const task = await send(StartMessageMoveTaskCommand, { SourceArn, MaxNumberOfMessagesPerSecond: 1 });
  await send(CancelMessageMoveTaskCommand, { TaskHandle: task.TaskHandle });
  await eventually(async () => {
    const { Results } = await send(ListMessageMoveTasksCommand, { SourceArn });
    return Results[0].Status === 'CANCELLED';
  }, 'the move is cancelled');
});

check('fifo_order_groups_and_duplicates', async () => {
  const QueueUrl = await queue({ FifoQueue: 'true', ContentBasedDeduplication: 'true' });
  const put = (MessageBody, MessageGroupId) => send(SendMessageCommand, { QueueUrl, MessageBody, MessageGroupId });
  const numbers = [];
  for (const body of ['a1', 'b1', 'a2', 'a1', 'a3']) numbers.push((await put(body, body[0])).SequenceNumber);
  assert.equal(numbers[3], numbers[0], 'a duplicate is answered with the first one');
  const first = await take(QueueUrl, { MaxNumberOfMessages: 2 });
  assert.deepEqual(bodies(first), ['a1', 'a2']);
  assert.deepEqual(bodies(await take(QueueUrl)), ['b1'], 'group a is in flight');
  for (const message of first) await remove(QueueUrl, message);
  assert.deepEqual(bodies(await take(QueueUrl)), ['a3']);
});

check('errors_are_caught_by_class', async () => {
  const url = await queue();
  const name = url.slice(url.lastIndexOf('/') + 1);
  const entry = { Id: 'one', MessageBody: 'x' };
  const eleven = Array.from({ length: 11 }, (_, n) => ({ Id: `${n}`, MessageBody: 'x' }));
  await send(PurgeQueueCommand, { QueueUrl: url });
  const cases = [
    [QueueDoesNotExist, SendMessageCommand, { QueueUrl: `${url}-gone`, MessageBody: 'x' }],
    [QueueNameExists, CreateQueueCommand, { QueueName: name, Attributes: { DelaySeconds: '5' } }],
    [InvalidAttributeName, CreateQueueCommand, { QueueName: fresh('x'), Attributes: { Colour: 'red' } }],
    [ReceiptHandleIsInvalid, DeleteMessageCommand, { QueueUrl: url, ReceiptHandle: 'garbage' }],
    [InvalidMessageContents, SendMessageCommand, { QueueUrl: url, MessageBody: 'zero \uFFFE' }],
    [PurgeQueueInProgress, PurgeQueueCommand, { QueueUrl: url }],
    [TooManyEntriesInBatchRequest, SendMessageBatchCommand, { QueueUrl: url, Entries: eleven }],
    [EmptyBatchRequest, SendMessageBatchCommand, { QueueUrl: url, Entries: [] }],
    [BatchEntryIdsNotDistinct, SendMessageBatchCommand, { QueueUrl: url, Entries: [entry, entry] }],
    [ResourceNotFoundException, StartMessageMoveTaskCommand, { SourceArn: `${await arn(url)}-gone` }],
  ];
  for (const [Kind, Command, input] of cases) {
    await assert.rejects(send(Command, input), (error) => {
      assert.ok(error instanceof Kind, `${Kind.name}: ${error}`);
      assert.ok(error instanceof SQSServiceException);
      return true;
    });
  }
});

await runChecks();
