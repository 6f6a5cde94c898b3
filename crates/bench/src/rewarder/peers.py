"""One job by one engine: adds up usage by actor, and divides a pool exactly by largest remainders."""
import json
import resource
import sys
import time

engine, job, path, threads, pool = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])


def duckdb_job():
    import duckdb

    connection = duckdb.connect()
    connection.execute(f"SET threads = {threads}")
    begin = time.perf_counter()
    connection.execute(
        f"CREATE TABLE totals AS SELECT actor, sum(quantity)::HUGEINT AS score FROM '{path}' GROUP BY actor"
    )
    table, column = "totals", "score"
    if job == "allocate":
        connection.execute(
            f"""
            CREATE TABLE paid AS
            WITH whole AS (SELECT sum(score)::HUGEINT AS score FROM totals),
            shares AS (
                SELECT actor, {pool}::HUGEINT * totals.score // whole.score AS share,
                    {pool}::HUGEINT * totals.score % whole.score AS rest
                FROM totals, whole
            ),
            missing AS (SELECT {pool}::HUGEINT - sum(share)::HUGEINT AS units FROM shares),
            ranked AS (SELECT actor, share, row_number() OVER (ORDER BY rest DESC, actor) AS place FROM shares)
            SELECT actor, share + CASE WHEN place <= units THEN 1 ELSE 0 END AS amount FROM ranked, missing
            """
        )
        table, column = "paid", "amount"
    seconds = time.perf_counter() - begin
    actors, total = connection.execute(f"SELECT count(*), sum({column}) FROM {table}").fetchone()
    return seconds, actors, int(total)


def divide(actors, scores):
    """Largest remainders over whole numbers of any length."""
    whole = sum(scores)
    shares = [pool * score // whole for score in scores]
    missing = pool - sum(shares)
    order = sorted(range(len(actors)), key=lambda index: (-(pool * scores[index] % whole), actors[index]))
    for index in order[:missing]:
        shares[index] += 1
    return shares


def polars_job():
    import polars

    begin = time.perf_counter()
    lazy = polars.scan_parquet(path).group_by("actor").agg(polars.col("quantity").sum())
    totals = lazy.collect(engine="streaming")
    if job == "aggregate":
        seconds = time.perf_counter() - begin
        return seconds, len(totals), int(totals["quantity"].sum())
    shares = divide(totals["actor"].to_list(), totals["quantity"].to_list())
    return time.perf_counter() - begin, len(shares), sum(shares)


def pandas_job():
    import pandas

    begin = time.perf_counter()
    totals = pandas.read_parquet(path).groupby("actor", sort=False)["quantity"].sum()
    if job == "aggregate":
        seconds = time.perf_counter() - begin
        return seconds, len(totals), int(totals.sum())
    shares = divide(list(totals.index), totals.tolist())
    return time.perf_counter() - begin, len(shares), sum(shares)


seconds, actors, total = {"duckdb": duckdb_job, "polars": polars_job, "pandas": pandas_job}[engine]()
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"seconds": seconds, "actors": actors, "sum": str(total), "peak_mib": peak}))
