/** A database that notes the plan of each statement before it runs it. */
import { Kysely, PostgresDialect } from 'kysely';
import pg from 'pg';
import type { Tables } from '../schema/tables.ts';

/** Adds the plans to `plans`. Settings in `connection.options` can exclude plans that only suit short tables. */
export function openExplaining(connection: pg.PoolConfig, plans: string[]): Kysely<Tables> {
  const pool = new pg.Pool(connection);
  const connect = async () => {
    const client = await pool.connect();
    const query = async (text: string, values: unknown[]): Promise<unknown> => {
      const { rows } = await client.query<Record<string, string>>(`EXPLAIN ${text}`, values);
      plans.push(rows.map((row) => row['QUERY PLAN']).join('\n'));
      return client.query(text, values);
    };
    return { query, release: () => client.release() };
  };
  const explaining = { connect, end: () => pool.end() } as unknown as pg.Pool;
  return new Kysely<Tables>({ dialect: new PostgresDialect({ pool: explaining }) });
}
