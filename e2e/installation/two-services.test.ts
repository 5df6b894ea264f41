/** Two services on one machine that differ only in data directory and port. The second runs as under systemd. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Coppice, type Sandbox } from '../../packages/sdk/src/index.ts';
import { networkSlug } from '../../packages/server/src/config/default-paths.mjs';
import { findFreePort } from '../../packages/server/src/control/testing/free-port.ts';
import { Installation, type Start } from '../fixtures/service/installation.ts';
import { LANE } from '../fixtures/lane.ts';
import { MAIN } from '../fixtures/service/service-program.ts';

const UNINSTALL = fileURLToPath(new URL('../../scripts/uninstall.mjs', import.meta.url));
/** Like `Type=exec`: standard output is a socket, and the variable names that socket. */
const UNDER_SYSTEMD = [
  'sh',
  '-euc',
  'export JOURNAL_STREAM="$(stat -L -c %d:%i "/proc/$$/fd/1")"; exec "$@"',
  'sh',
];
const ROOT = `/var/tmp/coppice-two-root-${LANE}`;
/** Both services prepare the image and boot a template for it. */
const START_TIMEOUT_MS = 480_000;
const COMMAND_TIMEOUT_MS = 180_000;
/** The shape of the service's first sandbox, so its template exists. */
const IMAGE = { image: 'coppice/base:1', timeout: 0 };
const KEY = /cop_live_us_[A-Za-z0-9]{40}/u;
const INVITATION = /inv_[\w-]{43}/u;
const FIRST_COMMAND = /-d '\{"image".*\n/u;

interface Service {
  installation: Installation;
  start: Start;
  /** Address of the API. */
  address: string;
  key: string;
  client: Coppice;
}

/** Parses the ranges that the service prints. */
function readRanges({ start }: Service): { guests: string; uidBase: number } {
  const guests = /^guest addresses: (\d+\.\d+)\.0\.0\/16$/mu.exec(start.stdout)?.[1];
  const uidBase = /^user ids of VMs: from (\d+)$/mu.exec(start.stdout)?.[1];
  assert.ok(guests !== undefined && uidBase !== undefined, start.stdout);
  return { guests, uidBase: Number(uidBase) };
}

const uidOf = (pid: number): number =>
  Number(/^Uid:\s+(\d+)/mu.exec(readFileSync(`/proc/${pid}/status`, 'latin1'))?.[1]);

async function health({ address }: Service): Promise<number> {
  return (await fetch(`${address}/healthz`)).status;
}

async function list(address: string, key: string): Promise<{ status: number; ids: string[] }> {
  const answer = await fetch(`${address}/v1/runs`, { headers: { authorization: `Bearer ${key}` } });
  const body = (await answer.json()) as { id: string }[];
  return { status: answer.status, ids: answer.ok ? body.map(({ id }) => id) : [] };
}

function tapsOf({ installation }: Service): string[] {
  const prefix = `cop${networkSlug(installation.dataDir)}-`;
  return readdirSync('/sys/class/net').filter((name) => name.startsWith(prefix));
}

/** Runs with a directory in place of `/`: no test may touch the machine's own unit and account. */
function uninstall({ installation }: Service, ...args: string[]): string {
  const settings = { COPPICE_DATA_DIR: installation.dataDir, COPPICE_ASSETS_DIR: join(ROOT, 'assets') };
  return execFileSync(process.execPath, [UNINSTALL, '--root', ROOT, ...args], {
    env: { PATH: process.env['PATH'], ...settings },
    encoding: 'utf8',
    timeout: COMMAND_TIMEOUT_MS,
  });
}

describe('two services on one machine that differ only in data directory and port', () => {
  const made = new AsyncDisposableStack();
  let one: Service;
  let two: Service;
  let sandboxOfOne: Sandbox;
  let sandboxOfTwo: Sandbox;

  async function prepare(
    name: string,
    command: readonly string[] = [],
  ): Promise<Omit<Service, 'key' | 'client'>> {
    const installation = made.use(await Installation.create({ name, choosesItself: true }));
    await installation.prepare();
    const listen = `127.0.0.1:${await findFreePort()}`;
    const start = installation.start({ COPPICE_LISTEN: listen }, [...command, process.execPath, MAIN]);
    return { installation, start, address: `http://${listen}` };
  }

  before(async () => {
    mkdirSync(ROOT, { recursive: true });
    // Started concurrently, to test that they do not choose the same ranges.
    const started = await Promise.all([prepare('one'), prepare('two', UNDER_SYSTEMD)]);
    const [first, second] = await Promise.all(
      started.map(async (service): Promise<Service> => {
        await service.start.waitForPrint(FIRST_COMMAND, START_TIMEOUT_MS);
        const path = join(service.installation.dataDir, 'control', 'first-api-key');
        const key = KEY.exec(existsSync(path) ? readFileSync(path, 'utf8') : service.start.stdout)?.[0] ?? '';
        return Object.assign(service, {
          key,
          client: new Coppice({ baseUrl: service.address, apiKey: key }),
        });
      }),
    );
    [one, two] = [first!, second!];
  });
  after(async () => {
    await made.disposeAsync();
    rmSync(ROOT, { recursive: true, force: true });
  });

  it('each has its own run directory, guest addresses and user ids', () => {
    const [first, second] = [one, two].map(readRanges);
    assert.notEqual(first!.guests, second!.guests);
    assert.ok(Math.abs(first!.uidBase - second!.uidBase) >= 18_436, `${first!.uidBase}, ${second!.uidBase}`);
    for (const { installation } of [one, two])
      assert.ok(existsSync(join(installation.runDir, 'runner.sock')));
    assert.notEqual(one.installation.runDir, two.installation.runDir);
  });

  it('the journal has neither key nor invitation, which are in files with mode 0600', () => {
    assert.match(one.start.stdout, KEY);
    assert.match(one.start.stdout, INVITATION);
    const written = two.start.stdout + two.start.stderr;
    assert.doesNotMatch(written, KEY);
    assert.doesNotMatch(written, INVITATION);
    const directory = join(two.installation.dataDir, 'control');
    for (const [name, pattern] of [
      ['first-api-key', KEY],
      ['first-invitation', INVITATION],
    ] as const) {
      const path = join(directory, name);
      assert.ok(two.start.stdout.includes(`\n  ${path}\n`), two.start.stdout);
      assert.match(readFileSync(path, 'utf8'), pattern);
      assert.equal(statSync(path).mode & 0o777, 0o600);
      assert.ok(!existsSync(join(one.installation.dataDir, 'control', name)));
    }
  });

  it('the command in the journal creates a sandbox unchanged', async () => {
    const command = /^ {2}curl [\s\S]*?\}'$/mu.exec(two.start.stdout)?.[0];
    const answer = execFileSync('/bin/sh', ['-c', command ?? 'exit 1'], { encoding: 'utf8' });
    const { id, status } = JSON.parse(answer) as Record<string, string>;
    assert.equal(status, 'running', answer);
    await (await two.client.sandboxes.get(id!))?.destroy();
  });

  it('each runs a sandbox within its ranges', async () => {
    [sandboxOfOne, sandboxOfTwo] = (await Promise.all(
      [one, two].map(({ client }) => client.sandboxes.create(IMAGE)),
    )) as [Sandbox, Sandbox];
    for (const [service, sandbox] of [
      [one, sandboxOfOne],
      [two, sandboxOfTwo],
    ] as const) {
      const { guests, uidBase } = readRanges(service);
      const { stdout } = await sandbox.exec("ip -4 -o address show dev eth0 | awk '{print $4}'");
      assert.ok(stdout.startsWith(`${guests}.`), stdout);
      const [pid, ...others] = service.installation.vmPids();
      assert.deepEqual(others, []);
      assert.ok(uidOf(pid!) > uidBase && uidOf(pid!) < uidBase + 18_436);
    }
  });

  it('each refuses the key of the other, and neither shows sandboxes of the other', async () => {
    assert.deepEqual(await list(one.address, two.key), { status: 401, ids: [] });
    assert.deepEqual(await list(two.address, one.key), { status: 401, ids: [] });
    assert.deepEqual(await list(one.address, one.key), { status: 200, ids: [sandboxOfOne.id] });
    assert.deepEqual(await list(two.address, two.key), { status: 200, ids: [sandboxOfTwo.id] });
    assert.equal(await one.client.sandboxes.get(sandboxOfTwo.id), null);
  });

  it('coppice admin doctor finds the service in its chosen run directory', () => {
    const { checks } = JSON.parse(two.installation.runDoctor('--json')) as {
      checks: { name: string; detail: string }[];
    };
    assert.match(checks.find(({ name }) => name === 'service')?.detail ?? '', /^running.*, 1 VMs$/u);
  });

  it('a service on the run directory of another is refused, and the error names both settings', async () => {
    const third = made.use(await Installation.create({ name: 'three', choosesItself: true }));
    const start = third.start({ COPPICE_RUN_DIR: one.installation.runDir });
    assert.notEqual(await start.ended, 0);
    assert.match(start.stderr, /another runner has its sockets in .*COPPICE_RUN_DIR.*COPPICE_DATA_DIR/u);
    assert.equal(await health(one), 200);
    assert.equal((await sandboxOfOne.exec('echo here')).stdout, 'here\n');
  });

  it('the error for a port in use names the setting that changes it', async () => {
    const { host } = new URL(one.address);
    const third = made.use(await Installation.create({ name: 'three', choosesItself: true }));
    const start = third.start({ COPPICE_LISTEN: host });
    assert.notEqual(await start.ended, 0);
    assert.ok(
      start.stderr.includes(`${host} is in use by another program; set COPPICE_LISTEN`),
      start.stderr,
    );
  });

  it('when one stops the other keeps serving', async () => {
    assert.equal(await two.start.stop(), 0);
    assert.equal(await health(one), 200);
    assert.equal((await sandboxOfOne.exec('echo here')).stdout, 'here\n');
    assert.deepEqual(await list(one.address, two.key), { status: 401, ids: [] });
    await using another = await one.client.sandboxes.create(IMAGE);
    assert.equal((await another.exec('hostname')).stdout, `${another.id}\n`);
  });

  it('the next start adopts the sandbox, with the same ranges', async () => {
    const before = readRanges(two);
    const start = two.installation.start({ COPPICE_LISTEN: new URL(two.address).host });
    await start.waitForPrint(/listening on http:\S+/u, START_TIMEOUT_MS);
    two = { ...two, start };
    assert.deepEqual(readRanges(two), before);
    assert.equal((await sandboxOfTwo.exec('echo here')).stdout, 'here\n');
  });

  it('removing one with its data does not affect the other and its sandboxes', async () => {
    const taps = tapsOf(one);
    const said = uninstall(two, '--purge');
    assert.match(said, /^ {2}the running service/mu);
    assert.match(said, /^ {2}1 running virtual machine$/mu);
    for (const path of [two.installation.dataDir, two.installation.runDir])
      assert.ok(!existsSync(path), path);
    assert.deepEqual(tapsOf(two), []);
    assert.deepEqual(tapsOf(one), taps);
    assert.equal(await health(one), 200);
    assert.equal((await sandboxOfOne.exec('echo here')).stdout, 'here\n');
    const others = readdirSync('/var/lib/coppice/installations');
    assert.ok(others.includes(networkSlug(one.installation.dataDir)));
    assert.ok(!others.includes(networkSlug(two.installation.dataDir)));
  });
});
