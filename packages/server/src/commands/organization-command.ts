/** `coppice admin organization`, on the server itself. packages/cli starts it in the Node.js of the service. */
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { costCents } from '@coppice/contract';
import { runCommand, UsageError } from './command-line.ts';
import { withDatabase } from './control-database.ts';
import { formatTable } from './format-table.ts';
import type { Config } from '../config/config.ts';
import { OrganizationAudit } from '../control/audit/organization/organization-audit.ts';
import type { Database } from '../control/db/database.ts';
import { ALWAYS_LIMITED, LIMIT_NAMES, type LimitName, type OwnLimits } from '../control/limits/own-limits.ts';
import {
  grantByOperator,
  listOrganizations,
  setLimits,
  type OrganizationSummary,
} from '../control/operator/organization-desk.ts';
import { MASTER_KEY_NAME, openMasterKeys } from '../control/secrets/master-key.ts';
import { SecretBox } from '../control/secrets/secret-box.ts';
import { hostMoment } from '../lib/host-clock.ts';

const CENTS = /^\s*(?<sign>-?)(?<whole>\d{1,9})(?:\.(?<fraction>\d{2}))?$/u;
/** Largest value of the 32-bit database columns. */
const MAX_INTEGER = 2 ** 31 - 1;
const MAX_LARGE_INTEGER = Number.MAX_SAFE_INTEGER;
const LARGE: ReadonlySet<LimitName> = new Set(['mem_mib', 'snapshot_bytes']);
const SHOWN_DIGITS = 2;
const CENTS_PER_USD = 100;
const HEADS = ['ID', 'NAME', 'REGION', 'SANDBOXES', 'COST USD', 'CREDIT LEFT', 'LIMITS OF ITS OWN'];

type Work = (db: Database, config: Config) => Promise<string>;

function list(args: string[]): Work {
  const { values } = parseArgs({ args, options: { json: { type: 'boolean' } } });
  return async (db, { control }) => {
    const options = { now: hostMoment(), welcomeCents: control.creditCents };
    const organizations = await listOrganizations(db, options);
    return values.json === true
      ? JSON.stringify(organizations.map(toJson), undefined, 2)
      : formatOrganizations(organizations);
  };
}

function grant(args: string[]): Work {
  const { values, positionals } = parseArgs({
    // The parser would take an argument that begins with a dash for an option.
    args: args.map((arg) => (/^-\d/u.test(arg) ? ` ${arg}` : arg)),
    options: { note: { type: 'string' } },
    allowPositionals: true,
  });
  const [organizationId, amount] = positionals;
  if (organizationId === undefined || amount === undefined || positionals.length > 2)
    throw new UsageError(
      'name an organization and an amount in USD: coppice admin organization grant org… 50',
    );
  const cents = readCents(amount);
  return async (db, config) => {
    await grantByOperator(
      { db, audit: openAudit(config) },
      { organizationId, cents, note: values.note ?? '' },
    );
    const told = `${organizationId} is granted ${formatUsd(cents)} USD.`;
    return config.control.creditCents === undefined
      ? `${told} Credit has no consequences, because COPPICE_CREDIT_USD is not set.`
      : told;
  };
}

function limit(args: string[]): Work {
  const options = Object.fromEntries(
    LIMIT_NAMES.map((name) => [toOption(name), { type: 'string' as const }]),
  );
  const { values, positionals } = parseArgs({ args, options, allowPositionals: true });
  const [organizationId] = positionals;
  if (organizationId === undefined || positionals.length > 1)
    throw new UsageError('name one organization: coppice admin organization limit org… --vcpus 64');
  const named = LIMIT_NAMES.filter((name) => values[toOption(name)] !== undefined);
  if (named.length === 0)
    throw new UsageError(`name a limit: ${LIMIT_NAMES.map((name) => `--${toOption(name)}`).join(', ')}`);
  const change = Object.fromEntries(
    named.map((name) => [name, readLimit(name, String(values[toOption(name)]))]),
  ) as Partial<OwnLimits>;
  return async (db, config) => {
    await setLimits({ db, audit: openAudit(config) }, organizationId, change);
    return `${organizationId}: ${describeLimits(change)}. In force within 10 s.`;
  };
}

function readCents(text: string): number {
  const { sign, whole, fraction } = CENTS.exec(text)?.groups ?? {};
  if (whole === undefined)
    throw new UsageError(`"${text.trim()}" is not an amount in USD: write 50, 12.50 or -5, with whole cents`);
  const cents = Number(whole) * CENTS_PER_USD + Number(fraction ?? 0);
  if (cents === 0) throw new UsageError('the amount is 0: nothing would change');
  return sign === '-' ? -cents : cents;
}

function readLimit(name: LimitName, text: string): number | null {
  if (text === 'default') return null;
  const mayBeNone = !ALWAYS_LIMITED.has(name);
  if (text === 'none' && mayBeNone) return 0;
  const value = /^\d{1,16}$/u.test(text) ? Number(text) : Number.NaN;
  const max = LARGE.has(name) ? MAX_LARGE_INTEGER : MAX_INTEGER;
  const min = name === 'snapshot_bytes' ? 0 : 1;
  if (value >= min && value <= max) return value;
  const words = mayBeNone ? '"none" for no limit, or "default"' : 'or "default"';
  throw new UsageError(`--${toOption(name)}: "${text}" is not a limit: write a number from ${min}, ${words}`);
}

function toOption(name: LimitName): string {
  return name.replaceAll('_', '-');
}

function describeLimits(limits: Partial<OwnLimits>): string {
  const own = LIMIT_NAMES.filter((name) => limits[name] !== undefined);
  return own.map((name) => `${toOption(name)} ${describeLimit(name, limits[name] ?? null)}`).join(', ');
}

function describeLimit(name: LimitName, value: number | null): string {
  if (value === null) return 'default';
  return value === 0 && !ALWAYS_LIMITED.has(name) ? 'none' : String(value);
}

function formatUsd(cents: number): string {
  return (cents / CENTS_PER_USD).toFixed(SHOWN_DIGITS);
}

/** Formats amounts as `GET /v1/usage` does; `credit_left_cents` is null if credit has no consequences. */
function toJson(summary: OrganizationSummary): object {
  const { spentUnits, creditLeftUnits, createdAt, ...rest } = summary;
  return {
    ...rest,
    created_at: new Date(createdAt).toISOString(),
    cost_cents: costCents(spentUnits),
    credit_left_cents: creditLeftUnits === undefined ? null : costCents(creditLeftUnits),
  };
}

function formatOrganizations(organizations: readonly OrganizationSummary[]): string {
  const rows = organizations.map(({ id, name, region, sandboxes, spentUnits, creditLeftUnits, limits }) => {
    const own = LIMIT_NAMES.filter((each) => limits[each] !== null);
    return [
      id,
      name,
      region,
      String(sandboxes),
      formatUsd(costCents(spentUnits)),
      creditLeftUnits === undefined ? 'off' : formatUsd(costCents(creditLeftUnits)),
      own.map((each) => `${toOption(each)} ${describeLimit(each, limits[each])}`).join(', '),
    ];
  });
  return formatTable(HEADS, rows);
}

/** The log is keyed by a secret that is sealed with the service's master key. */
function openAudit({ control }: Config): OrganizationAudit {
  const { current, older } = openMasterKeys(join(control.dataDir, MASTER_KEY_NAME));
  return new OrganizationAudit(new SecretBox(current, older));
}

async function main(): Promise<void> {
  const [verb, ...args] = process.argv.slice(2);
  const understand = { list, grant, limit }[verb ?? ''];
  if (understand === undefined)
    throw new UsageError(`unknown command "${verb ?? ''}": expected list, grant or limit`);
  process.stdout.write(`${await withDatabase('organization', understand(args))}\n`);
}

await runCommand('coppice admin', main);
