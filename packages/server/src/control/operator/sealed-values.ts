/**
 * All values that are sealed with the master key: their columns and contexts. A test detects columns that are not
 * listed.
 */
import { sql } from 'kysely';
import { bindOrganizationAuditSecret } from '../audit/organization/organization-secrets.ts';
import { bindTeamSecret } from '../audit/team-secrets.ts';
import { bindAuthorityKey } from '../authority/authority.ts';
import type { Database } from '../db/database.ts';
import { bindGrant } from '../egress/grants.ts';
import { bindNamedSecret } from '../egress/named-secrets/secret-values.ts';
import { bindRegistryPassword } from '../registries/registries.ts';
import { bindWebhookSecret } from '../webhooks/webhook-secret.ts';
import { bindEnvironment } from '../sandbox/environment/environments.ts';
import type { SecretBox, SecretContext } from '../secrets/secret-box.ts';

interface SealedRow {
  /** Values of the primary key, as text, in the order of `key`. */
  key: string[];
  organization_id: string;
  sealed: Buffer;
}

interface SealedColumn {
  table: string;
  column: string;
  key: readonly string[];
  /** Whether its rows belong to the installation, and to no organization. */
  isOfInstallation?: boolean;
  /** The table that has the organization, and the column that refers to it, if the table itself has no such column. */
  through?: { table: string; column: string };
  bind: (row: SealedRow) => SecretContext;
}

const nth = ({ key }: SealedRow, index: number): string => key[index] ?? '';

export const SEALED_COLUMNS: readonly SealedColumn[] = [
  { table: 'authorities', column: 'sealed_key', key: ['id'], isOfInstallation: true, bind: bindAuthorityKey },
  {
    table: 'registry_credentials',
    column: 'sealed_password',
    key: ['organization_id', 'registry'],
    bind: (row) => bindRegistryPassword(row.organization_id, nth(row, 1)),
  },
  {
    table: 'team_secrets',
    column: 'sealed_secret',
    key: ['id', 'team_id'],
    through: { table: 'teams', column: 'team_id' },
    bind: (row) => bindTeamSecret({ organizationId: row.organization_id, teamId: nth(row, 1) }, nth(row, 0)),
  },
  {
    table: 'organization_audit_secrets',
    column: 'sealed_secret',
    key: ['id'],
    bind: (row) => bindOrganizationAuditSecret(row.organization_id, nth(row, 0)),
  },
  {
    table: 'sandbox_credentials',
    column: 'sealed_secret',
    key: ['sandbox_id', 'service'],
    through: { table: 'sandboxes', column: 'sandbox_id' },
    bind: (row) => bindGrant({ id: nth(row, 0), organization_id: row.organization_id }, nth(row, 1)),
  },
  {
    table: 'named_secrets',
    column: 'sealed_value',
    key: ['organization_id', 'name'],
    bind: (row) => bindNamedSecret(row.organization_id, nth(row, 1)),
  },
  ...['sealed_secret', 'sealed_old_secret'].map((column) => ({
    table: 'webhooks',
    column,
    key: ['id'],
    bind: (row: SealedRow) => bindWebhookSecret(row.organization_id, nth(row, 0)),
  })),
  ...['sandboxes', 'snapshots'].map((table) => ({
    table,
    column: 'sealed_env',
    key: ['id'],
    bind: (row: SealedRow) => bindEnvironment({ id: nth(row, 0), organization_id: row.organization_id }),
  })),
];

export interface Resealed {
  values: number;
  /** Values that are sealed with unknown keys; they stay unreadable. */
  unreadable: number;
}

/** Seals values of older keys with the current key. Call inside a transaction. */
export async function resealAll(transaction: Database, box: SecretBox): Promise<Resealed> {
  const sum: Resealed = { values: 0, unreadable: 0 };
  for (const column of SEALED_COLUMNS) {
    for (const row of await listSealed(transaction, column)) {
      if (!box.isOutdated(row.sealed)) continue;
      const anew = reseal(box, row, column);
      if (anew === undefined) sum.unreadable += 1;
      else {
        await store(transaction, { column, row, sealed: anew });
        sum.values += 1;
      }
    }
  }
  return sum;
}

function reseal(box: SecretBox, row: SealedRow, { bind }: SealedColumn): Buffer | undefined {
  const context = bind(row);
  try {
    return box.seal(box.open(row.sealed, context), context);
  } catch {
    return undefined; // sealed with a key that was lost earlier
  }
}

async function listSealed(
  db: Database,
  { table, column, key, through, isOfInstallation = false }: SealedColumn,
): Promise<SealedRow[]> {
  const own = (name: string) => sql.ref(`${table}.${name}`);
  const texts = sql.join(key.map((name) => own(name)));
  const join =
    through === undefined
      ? sql``
      : sql`JOIN ${sql.table(through.table)} ON ${sql.ref(`${through.table}.id`)} = ${own(through.column)}`;
  const organization = isOfInstallation ? sql`''` : sql.ref(`${through?.table ?? table}.organization_id`);
  const { rows } = await sql<SealedRow>`
    SELECT ARRAY[${texts}]::text[] AS key, ${organization} AS organization_id, ${own(column)} AS sealed
    FROM ${sql.table(table)} ${join}
    WHERE ${own(column)} IS NOT NULL`.execute(db);
  return rows;
}

async function store(
  db: Database,
  { column, row, sealed }: { column: SealedColumn; row: SealedRow; sealed: Buffer },
): Promise<void> {
  const parts = column.key.map((name, index) => sql`${sql.ref(name)} = ${nth(row, index)}`);
  await sql`
    UPDATE ${sql.table(column.table)} SET ${sql.ref(column.column)} = ${sealed}
    WHERE ${sql.join(parts, sql` AND `)}`.execute(db);
}
