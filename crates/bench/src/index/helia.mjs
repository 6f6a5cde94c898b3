// Helia's server of Delegated Routing V1 with one provider in memory, instead of a Helia node that would look for it.

import { createDelegatedRoutingV1HttpApiServer } from '@helia/delegated-routing-v1-http-api-server';

const [port, cid] = process.argv.slice(2);
const provider = {
  id: '12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN',
  multiaddrs: ['/ip4/192.0.2.17/tcp/4001', '/ip4/192.0.2.17/udp/4001/quic-v1'],
};
const providers = new Map([[cid, [provider]]]);
const routing = {
  async* findProviders(wanted) {
    yield* providers.get(wanted.toString()) ?? [];
  },
};
await createDelegatedRoutingV1HttpApiServer({ routing }, { listen: { host: '127.0.0.1', port: Number(port) } });
