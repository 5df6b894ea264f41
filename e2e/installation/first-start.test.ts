import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { after, before, describe, it } from 'node:test';
import { Coppice, type Sandbox } from '../../packages/sdk/src/index.ts';
import { searchDisk } from '../fixtures/host/disk-search.ts';
import { Installation, type Start } from '../fixtures/service/installation.ts';

const START_TIMEOUT_MS = 120_000;
const STOP_LIMIT_MS = 10_000;
const KEY = /cop_live_us_[A-Za-z0-9]{40}\b/gu;
const ADDRESS = /listening on (http:\S+)/u;
const IMAGE = { image: 'coppice/base:1', memMiB: 256, timeout: 0 };

describe('the first starts of an installation', () => {
  let installation: Installation;
  let service: Start;
  let key: string;
  let sandbox: Sandbox;
  const connect = (start: Start): Coppice =>
    new Coppice({ baseUrl: ADDRESS.exec(start.stdout)![1]!, apiKey: key });
  before(async () => {
    installation = await Installation.create();
    service = installation.start();
    await service.waitForPrint(/-d '\{"image".*\n/u, START_TIMEOUT_MS);
    key = service.stdout.match(KEY)?.[0] ?? '';
  });
  after(() => installation[Symbol.asyncDispose]());

  it('the first start prints the accelerator, one key, one invitation, and the output of a first sandbox', () => {
    const { stdout } = service;
    assert.match(stdout, /^accelerator: (kvm|tcg) \(.+\)$/mu);
    assert.equal(stdout.match(/shown this once:\n\n {2}cop_live_us_[A-Za-z0-9]{40}\n/gu)?.length, 1, stdout);
    assert.deepEqual([...new Set(stdout.match(KEY))], [key]);
    assert.equal(stdout.match(/shown this once:\n\n {2}inv_[\w-]{43}\n/gu)?.length, 1, stdout);
    const invitation = /^ {2}(inv_[\w-]{43})$/mu.exec(stdout)?.[1];
    const link = `${ADDRESS.exec(stdout)?.[1]}/sign-up#invitation=${invitation}`;
    assert.ok(stdout.split('\n').includes(`  ${link}`), stdout);
    assert.match(stdout, /sandbox run[0-9a-f]{20} started in \d+ ms and ran:\n/u);
    assert.match(stdout, /^ {2}hello from Linux \S+, 1 vCPU, \d+ MiB$/mu);
    assert.deepEqual(installation.vmPids(), []);
  });

  it('the printed command creates a sandbox unchanged', async () => {
    const command = /^ {2}curl [\s\S]*?\}'$/mu.exec(service.stdout)?.[0];
    const answer = execFileSync('/bin/sh', ['-c', command ?? 'exit 1'], { encoding: 'utf8' });
    const { id, status } = JSON.parse(answer) as Record<string, string>;
    assert.equal(status, 'running', answer);
    await (await connect(service).sandboxes.get(id!))?.destroy();
  });

  it('the printed invitation makes one owner, once', async () => {
    const origin = ADDRESS.exec(service.stdout)![1]!;
    const invitation = /inv_[\w-]{43}/u.exec(service.stdout)?.[0];
    const signUp = (email: string): Promise<Response> =>
      fetch(`${origin}/account/sign-up`, {
        method: 'POST',
        headers: { origin, 'content-type': 'application/json' },
        body: JSON.stringify({ email, password: 'correct horse battery', name: 'Owner', invitation }),
      });
    const answer = await signUp('owner@example.test');
    assert.equal(answer.status, 201);
    const { organizations } = (await answer.json()) as { organizations: { name: string; role: string }[] };
    assert.deepEqual(
      organizations.map(({ name, role }) => [name, role]),
      [['default', 'owner']],
    );
    assert.equal((await signUp('another@example.test')).status, 400);
  });

  it('the key is in no file and not in the log; only its hash is stored', async () => {
    const secret = key.slice('cop_live_us_'.length);
    const hash = createHash('sha256').update(key).digest();
    const needles = [Buffer.from(secret), hash];
    assert.deepEqual(await searchDisk(installation.dataDir, needles), [false, true]);
    assert.deepEqual(await searchDisk(installation.runDir, needles), [false, false]);
    assert.ok(!service.stderr.includes(secret));
  });

  it('coppice admin doctor finds everything it needs, and names the accelerator', () => {
    const accelerator = /^accelerator: (\w+)/mu.exec(service.stdout)?.[1];
    assert.match(installation.runDoctor(), new RegExp(`^(ok|warn) +accelerator +${accelerator}: .+$`, 'mu'));
    const { ok, checks } = JSON.parse(installation.runDoctor('--json')) as {
      ok: boolean;
      checks: { name: string; status: string; detail: string }[];
    };
    assert.equal(ok, true);
    const found = checks.find(({ name }) => name === 'accelerator');
    assert.ok(found?.detail.startsWith(`${accelerator}: `), found?.detail);
  });

  it('a second service on the same data directory is refused and does not harm the first', async () => {
    sandbox = await connect(service).sandboxes.create(IMAGE);
    await sandbox.exec('echo kept > /workspace/file');
    const second = installation.start();
    assert.notEqual(await second.ended, 0);
    assert.match(second.stderr, /another runner works in/u);
    assert.ok(!ADDRESS.test(second.stdout));
    const elsewhere = installation.start({ COPPICE_RUN_DIR: `${installation.runDir}-2` });
    assert.notEqual(await elsewhere.ended, 0);
    assert.match(elsewhere.stderr, /another runner works in/u);
    assert.equal((await sandbox.exec('cat /workspace/file')).stdout, 'kept\n');
    await using other = await connect(service).sandboxes.create(IMAGE);
    assert.equal((await other.exec('hostname')).stdout, `${other.id}\n`);
  });

  it('SIGTERM ends the service with 0 in seconds, and a sandbox continues', async () => {
    const [vm] = installation.vmPids();
    const postmaster = `${installation.dataDir}/control/postgres/postmaster.pid`;
    assert.ok(existsSync(postmaster));
    const started = performance.now();
    assert.equal(await service.stop(), 0, service.stderr.slice(-3000));
    assert.ok(performance.now() - started < STOP_LIMIT_MS);
    assert.deepEqual(installation.vmPids(), [vm]);
    assert.ok(!existsSync(postmaster));
  });

  it('the second start prints no key, adopts the sandbox and accepts the first key', async () => {
    const [vm] = installation.vmPids();
    service = installation.start();
    await service.waitForPrint(ADDRESS, START_TIMEOUT_MS);
    const found = await connect(service).sandboxes.get(sandbox.id);
    assert.equal(found?.status, 'running');
    assert.equal((await found.exec('cat /workspace/file')).stdout, 'kept\n');
    assert.deepEqual(installation.vmPids(), [vm]);
    assert.ok((await found.destroy()).cpuMs > 0);
    assert.deepEqual(installation.vmPids(), []);
    assert.ok(!/cop_live_|shown this once|first sandbox/u.test(service.stdout), service.stdout);
    assert.equal(await service.stop(), 0);
  });
});
