/** `coppice admin runner`, on the server itself. packages/cli starts it in the Node.js of the service. */
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { runCommand, UsageError } from './command-line.ts';
import { withDatabase } from './control-database.ts';
import { formatTable } from './format-table.ts';
import { ConfigError, loadConfig } from '../config/config.ts';
import { ensureAuthority } from '../control/authority/authority.ts';
import { makeToken } from '../control/authority/join-tokens.ts';
import { listRunners, revokeRunner, type ListedRunner } from '../control/authority/joined-runners.ts';
import {
  beginDrain,
  cordonRunner,
  listAtRunner,
  uncordonRunner,
} from '../control/ownership/closed-runners.ts';
import { MASTER_KEY_NAME, openMasterKeys } from '../control/secrets/master-key.ts';
import { SecretBox } from '../control/secrets/secret-box.ts';
import { armFaults } from '../lib/fault-directory.ts';
import { createLog } from '../lib/log.ts';
import { lockDirectories } from '../lib/process/instance-lock.ts';
import {
  formatAddress,
  parseAddress,
  parseToken,
  type HostAndPort,
  type JoinToken,
} from '../lib/protocol/join-protocol.ts';
import { joinInstallation } from '../runner/identity/join-installation.ts';

const LOG_NAME = 'runner-command';
const MINUTE_MS = 60_000;
const DEFAULT_MINUTES = 60;
const DEFAULT_DRAIN_MINUTES = 10;
const LOOK_EVERY_MS = 1_000;
const MAX_SHOWN = 20;
const MAX_MINUTES = 7 * 24 * 60;
const HEADS = [
  'ID',
  'STATE',
  'ADDRESS',
  'OWNER',
  'EPOCH',
  'REGION',
  'VMS',
  'MEMORY',
  'HEARD',
  'QEMU',
  'JOINED',
];

async function token(args: string[]): Promise<string> {
  const { values } = parseArgs({
    args,
    options: { runner: { type: 'string' }, minutes: { type: 'string', default: String(DEFAULT_MINUTES) } },
  });
  const minutes = readMinutes(values.minutes);
  return withDatabase(LOG_NAME, async (db, { control }) => {
    const { current, older } = openMasterKeys(join(control.dataDir, MASTER_KEY_NAME));
    const authority = await ensureAuthority(db, new SecretBox(current, older));
    const made = await makeToken(db, authority, { runnerId: values.runner, validMs: minutes * MINUTE_MS });
    // Alone on the standard output, for scripts.
    process.stderr.write(`${describeUse(control.internalListen, minutes)}\n`);
    return made.reveal();
  });
}

function describeUse(listen: HostAndPort | undefined, minutes: number): string {
  const url = listen === undefined ? 'https://<control:port>' : `https://${formatAddress(listen)}`;
  const missing =
    listen === undefined
      ? ' COPPICE_INTERNAL_LISTEN is not set here: no runner can join through this control until it is.'
      : '';
  return `Valid once, for ${minutes} min. On the machine of the runner: coppice admin runner join ${url} --token …${missing}`;
}

async function list(args: string[]): Promise<string> {
  const { values } = parseArgs({ args, options: { json: { type: 'boolean' } } });
  return withDatabase(LOG_NAME, async (db) => {
    const runners = await listRunners(db);
    return values.json === true ? JSON.stringify(runners.map(toJson), undefined, 2) : formatRunners(runners);
  });
}

async function revoke(args: string[]): Promise<string> {
  const { positionals } = parseArgs({ args, options: {}, allowPositionals: true });
  const id = readRunner('revoke', positionals);
  return withDatabase(LOG_NAME, async (db) => {
    await revokeRunner(db, id);
    return `${id} is revoked for good: no control connects to it. Stop its service, and delete its data directory to use the machine again.`;
  });
}

async function cordon(args: string[]): Promise<string> {
  const id = readRunner('cordon', args);
  return withDatabase(LOG_NAME, async (db) => {
    await cordonRunner(db, id);
    return `${id} gets no new sandboxes; those that it has continue. coppice admin runner uncordon ends it.`;
  });
}

async function uncordon(args: string[]): Promise<string> {
  const id = readRunner('uncordon', args);
  return withDatabase(LOG_NAME, async (db) => {
    await uncordonRunner(db, id);
    return `${id} gets new sandboxes again.`;
  });
}

/** Waits until the runner has no VM, or for the given time. Exits with 1 if VMs are left. */
async function drain(args: string[]): Promise<string> {
  const { values, positionals } = parseArgs({
    args,
    options: { minutes: { type: 'string', default: String(DEFAULT_DRAIN_MINUTES) } },
    allowPositionals: true,
  });
  const id = readRunner('drain', positionals);
  const waitMs = readMinutes(values.minutes) * MINUTE_MS;
  return withDatabase(LOG_NAME, async (db) => {
    await beginDrain(db, id, waitMs);
    const end = performance.now() + waitMs;
    let left = await listAtRunner(db, id);
    while (left.length > 0 && performance.now() < end) {
      await delay(Math.min(LOOK_EVERY_MS, Math.max(0, end - performance.now())));
      left = await listAtRunner(db, id);
    }
    if (left.length === 0) return `${id} has no VM any more, and gets no new ones.`;
    process.exitCode = 1;
    const shown = left.slice(0, MAX_SHOWN).join(', ');
    return `${id} still has ${left.length} sandboxes that do not hibernate by themselves: ${shown}${left.length > MAX_SHOWN ? ', …' : ''}. Destroy or hibernate them, or wait for their ends.`;
  });
}

function readRunner(verb: string, args: readonly string[]): string {
  const [id] = args;
  if (id === undefined || args.length > 1)
    throw new UsageError(`name one runner: coppice admin runner ${verb} runner-…`);
  return id;
}

function readMinutes(text: string): number {
  const minutes = /^\d{1,5}$/u.test(text) ? Number(text) : 0;
  if (minutes >= 1 && minutes <= MAX_MINUTES) return minutes;
  throw new UsageError(`--minutes: "${text}" is not a whole number from 1 to ${MAX_MINUTES}`);
}

async function joinOne(args: string[]): Promise<string> {
  const { values, positionals } = parseArgs({
    args,
    options: { token: { type: 'string' }, address: { type: 'string' } },
    allowPositionals: true,
  });
  const [url] = positionals;
  if (url === undefined || positionals.length > 1)
    throw new UsageError(
      'name one control: coppice admin runner join https://<control:port> --token <token>',
    );
  const control = readControl(url);
  const read = await readToken(values.token);
  const address = values.address === undefined ? undefined : readAddress(values.address);
  const { runner, faultDir } = loadConfig();
  armFaults(faultDir);
  const { dataDir, listen } = runner;
  if (listen === undefined)
    throw new ConfigError(
      'COPPICE_RUNNER_LISTEN is not set: set it to the address:port of this machine at which controls reach it, such as ' +
        '10.0.0.5:9443, in the settings of the service',
    );
  await using _ = await lockDirectories('runner', runner);
  const log = createLog(LOG_NAME, 'warn');
  const record = await joinInstallation({ dataDir, control, token: read, listen, address, log });
  return `${record.runner_id} has joined: controls reach it at ${record.address}. Start the service of this machine.`;
}

function readControl(text: string): HostAndPort {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  const place = url === undefined ? undefined : parseAddress(`${url.hostname}:${url.port || '443'}`);
  const isPlain =
    url?.pathname === '/' && url.search === '' && url.username === '' && url.protocol === 'https:';
  if (place !== undefined && isPlain) return place;
  throw new UsageError(`"${text}" is not the URL of a control, such as https://10.0.0.1:9444`);
}

/** `-` reads the token from the standard input, so that no list of processes shows it. */
async function readToken(given: string | undefined): Promise<JoinToken> {
  if (given === undefined)
    throw new UsageError(
      '--token is missing: "coppice admin runner token" on the machine of a control makes one',
    );
  const found = parseToken((given === '-' ? await text(process.stdin) : given).trim());
  if (found !== undefined) return found;
  throw new UsageError(
    '--token: is malformed or incomplete; a token looks like cjt_<43 characters>.<64 hex digits>',
  );
}

function readAddress(given: string): HostAndPort {
  const place = parseAddress(given);
  if (place !== undefined) return place;
  throw new UsageError(`--address: "${given}" is not host:port, such as 10.0.0.5:9443`);
}

function stateOf({ revokedAt, cordonedAt, address }: ListedRunner): string {
  if (revokedAt !== null) return 'revoked';
  if (cordonedAt !== null) return 'cordoned';
  return address === null ? 'local' : 'joined';
}

function toJson(runner: ListedRunner): object {
  const { id, region, address, owner, epoch, joinedAt, revokedAt } = runner;
  const shown = (at: number | null) => (at === null ? null : new Date(at).toISOString());
  return {
    id,
    state: stateOf(runner),
    region,
    address,
    owner,
    epoch,
    owner_alive: runner.isOwned,
    draining: runner.isDraining,
    vms: runner.vms,
    mem_mib: runner.report?.capacity.mem_mib ?? null,
    vcpus: runner.report?.capacity.vcpus ?? null,
    versions: runner.report?.versions ?? null,
    heard_seconds_ago: runner.heardAgoMs === null ? null : toSeconds(runner.heardAgoMs),
    joined_at: shown(joinedAt),
    revoked_at: shown(revokedAt),
  };
}

function formatRunners(runners: readonly ListedRunner[]): string {
  const rows = runners.map((runner) => [
    runner.id,
    stateOf(runner),
    runner.address ?? '-',
    describeOwner(runner),
    String(runner.epoch),
    runner.region,
    String(runner.vms),
    describeMemory(runner),
    runner.heardAgoMs === null ? '-' : `${toSeconds(runner.heardAgoMs)} s ago`,
    runner.report?.versions.qemu ?? '-',
    runner.joinedAt === null ? '-' : new Date(runner.joinedAt).toISOString(),
  ]);
  return formatTable(HEADS, rows);
}

function describeOwner({ owner, isOwned }: ListedRunner): string {
  if (owner === null) return '-';
  return isOwned ? owner : `${owner} (gone)`;
}

/** Formats the memory that is promised to VMs, of what may be. */
function describeMemory({ report }: ListedRunner): string {
  if (report === undefined) return '-';
  const { promised, limit } = report.capacity.mem_mib;
  return `${promised} of ${limit} MiB`;
}

function toSeconds(ms: number): number {
  return Math.max(0, Math.round(ms / 1000));
}

async function main(): Promise<void> {
  const [verb, ...args] = process.argv.slice(2);
  const run = { join: joinOne, token, list, revoke, cordon, uncordon, drain }[verb ?? ''];
  if (run === undefined)
    throw new UsageError(
      `unknown command "${verb ?? ''}": expected join, token, list, cordon, uncordon, drain or revoke`,
    );
  process.stdout.write(`${await run(args)}\n`);
}

await runCommand('coppice admin runner', main);
