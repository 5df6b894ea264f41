/** `coppice admin doctor` on faulty hosts, each in a network namespace of the test. */
import assert from 'node:assert/strict';
import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { after, before, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { pollUntil } from '../../packages/server/src/lib/waiting/deadline.ts';
import { makeOrdinaryUser, withoutKvm } from '../fixtures/service/launchers.ts';

const CLI = fileURLToPath(new URL('../../packages/cli/bin/coppice.mjs', import.meta.url));
const DIAGNOSE = fileURLToPath(new URL('../../packages/server/src/diagnosis/diagnose.ts', import.meta.url));
const UID = 1_990_008;
const DOCTOR_TIMEOUT_MS = 60_000;
const TOOL_TIMEOUT_MS = 10_000;
const PROBE_INTERFACE = /\b(?:doc\d+|cop[0-9a-f]{4}-0)\b/u;

interface Report {
  ok: boolean;
  checks: { name: string; status: string; detail: string; remedy?: string }[];
}

/** A network namespace that stands for the host. A child process holds it. */
class HostNamespace implements AsyncDisposable {
  readonly #holder: ChildProcess;

  private constructor(holder: ChildProcess) {
    this.#holder = holder;
  }

  static async make(): Promise<HostNamespace> {
    const holder = spawn('unshare', ['--net', 'sh', '-c', 'ip link set lo up && echo up && exec sleep 600'], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    await once(holder.stdout, 'data');
    return new HostNamespace(holder);
  }

  command(...words: string[]): [string, string[]] {
    return ['nsenter', ['--target', String(this.#holder.pid), '--net', ...words]];
  }

  run(...words: string[]): string {
    return execFileSync(...this.command(...words), { encoding: 'utf8', timeout: TOOL_TIMEOUT_MS });
  }

  get traces(): string {
    return this.run('ip', '-brief', 'link') + this.run('nft', 'list', 'tables');
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const exited = once(this.#holder, 'exit');
    this.#holder.kill('SIGKILL');
    await exited;
  }
}

/** Returns the exit code and the report of any outcome. */
async function runDoctor(
  [program, args]: [string, string[]],
  env: NodeJS.ProcessEnv = {},
): Promise<{ code: number | null; report: Report }> {
  const child = spawn(program, [...args, 'admin', 'doctor', '--json'], {
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'inherit'],
    timeout: DOCTOR_TIMEOUT_MS,
  });
  let output = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => (output += text));
  const [code] = (await once(child, 'close')) as [number | null];
  return { code, report: JSON.parse(output) as Report };
}

function findRow(report: Report, name: string): Report['checks'][number] {
  const row = report.checks.find((check) => check.name === name);
  assert.ok(row, `no row ${name} in ${JSON.stringify(report.checks.map((check) => check.name))}`);
  return row;
}

describe('coppice admin doctor on a host without KVM', () => {
  it('fails with COPPICE_ACCELERATOR=kvm, and gives the reason', async () => {
    const [program, ...args] = [...withoutKvm().command, process.execPath, CLI];
    const { code, report } = await runDoctor([program, args], { COPPICE_ACCELERATOR: 'kvm' });
    const row = findRow(report, 'accelerator');
    assert.match(
      row.detail,
      /^the service does not start: COPPICE_ACCELERATOR=kvm, but (?:there is no \/dev\/kvm|\/dev\/kvm is there, but no kernel boots)/u,
    );
    assert.deepEqual([row.status, code], ['fail', 1]);
  });
});

describe('coppice admin doctor on a host whose firewall drops forwarded packets', () => {
  let host: HostNamespace;
  before(async () => {
    host = await HostNamespace.make();
  });
  after(() => host[Symbol.asyncDispose]());
  const doctor = () => runDoctor(host.command(process.execPath, CLI));

  it('names the chain that drops, fails, and leaves nothing behind', async () => {
    host.run('nft', 'add table inet wall');
    host.run('nft', 'add chain inet wall passing { type filter hook forward priority 0; policy drop; }');
    const clean = host.traces;
    const { code, report } = await doctor();
    const row = findRow(report, 'network');
    assert.match(row.detail, /was not forwarded \(no answer\): dropped by table inet wall, chain passing/u);
    assert.deepEqual([row.status, report.ok, code], ['fail', false, 1]);
    assert.equal(host.traces, clean);
  });

  it('shows a remedy that works unchanged; after it the host forwards', async () => {
    const { remedy } = findRow((await doctor()).report, 'network');
    host.run('sh', '-c', remedy ?? 'false');
    const { report } = await doctor();
    const row = findRow(report, 'network');
    assert.equal(row.status, 'ok', row.detail);
    assert.match(
      findRow(report, 'accelerator').detail,
      /^(?:kvm|tcg): .*a guest kernel booted in|took longer|broken off/u,
    );
  });

  it('removes the leftovers of a killed probe', async () => {
    const [program, args] = host.command(process.execPath, DIAGNOSE, 'network');
    const probe = spawn(program, args, { stdio: ['pipe', 'ignore', 'inherit'] });
    const exited = once(probe, 'exit');
    const wait = (step: string, check: () => boolean) =>
      pollUntil({ step, timeoutMs: TOOL_TIMEOUT_MS, intervalMs: 5 }, () => check() || undefined);
    await wait('interfaces of the probe', () => PROBE_INTERFACE.test(host.run('ip', '-brief', 'link')));
    probe.kill('SIGKILL');
    await exited;
    await wait('the end of its namespaces', () => !PROBE_INTERFACE.test(host.run('ip', '-brief', 'link')));
    assert.match(host.traces, /coppice_doctor_\d+/u);
    const next = spawn(program, args, { stdio: ['pipe', 'ignore', 'inherit'], timeout: DOCTOR_TIMEOUT_MS });
    assert.deepEqual(await once(next, 'exit'), [0, null]);
    assert.doesNotMatch(host.traces, /coppice_doctor_|cop[0-9a-f]{4}-|doc\d/u);
  });
});

describe('coppice admin doctor as an ordinary user', () => {
  it('boots a kernel, says what it could not try and why, and does not fail for that', async () => {
    using user = makeOrdinaryUser(UID, '/var/tmp/coppice-e2e-doctor');
    const [program, ...args] = user.launcher.command;
    const cli = `${user.home}/coppice/packages/cli/bin/coppice.mjs`;
    const env = { HOME: user.home, XDG_RUNTIME_DIR: '', XDG_DATA_HOME: '' };
    const { code, report } = await runDoctor([program!, [...args, process.execPath, cli]], env);
    const network = findRow(report, 'network');
    assert.equal(network.detail, 'none: the service runs as an ordinary user');
    assert.deepEqual([network.status, network.remedy], ['warn', 'run it as root']);
    assert.match(findRow(report, 'user').detail, /all VMs run as this user/u);
    assert.match(
      findRow(report, 'accelerator').detail,
      /^(?:kvm|tcg): .*a guest kernel booted in|took longer|broken off/u,
    );
    assert.match(findRow(report, 'socket paths').detail, new RegExp(`/tmp/coppice-${UID}/coppice`, 'u'));
    const failed = report.checks.filter(({ status }) => status === 'fail');
    assert.deepEqual(failed, []);
    assert.equal(code, 0);
  });
});
