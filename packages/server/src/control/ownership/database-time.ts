import { sql } from 'kysely';

/** The time of PostgreSQL in Unix milliseconds: the clock of leases, which all controls share. */
export const DATABASE_NOW = sql<number>`(extract(epoch FROM now()) * 1000)::bigint`;
