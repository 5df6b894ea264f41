import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { pino } from 'pino';
import { BUILTIN_SERVICES } from '../../lib/credential-services/builtin-services.ts';
import type { VmEgress } from '../../lib/protocol/egress-protocol.ts';
import { findVmRecord } from '../vm/vm-record.ts';
import type { AgentSession } from '../agent-client/agent-session.ts';
import { TAP_SLOTS } from '../network/vm-network.ts';
import { StepTimer } from '../vm/step-timer.ts';
import { VmAssembler, type AssembledVm, type AssemblyParts, type Blueprint } from './vm-assembly.ts';
import { TEMPLATE_COUNTERS, VmDriver } from './vm-driver.ts';
import { NO_RULES } from './vm-egress.ts';

/** A record refuses uid 0. */
const UID = process.getuid?.() || 1;
const log = pino({ level: 'silent' });
const ID = 'run00000000000000000001';
const DENY_ALL: VmEgress = { ...NO_RULES, network: { ...NO_RULES.network, default: 'deny' } };

/** An assembler over stand-ins that record the order of operations on the network and the guest. */
class Assembly implements Disposable {
  readonly order: string[] = [];
  readonly told: unknown[] = [];
  readonly driver: VmDriver;
  setEgress: (egress: VmEgress) => Promise<void> = async () => undefined;
  resume: () => Promise<void> = async () => undefined;
  readonly #assembler: VmAssembler;
  readonly #directory = mkdtempSync(join(tmpdir(), 'assembly-'));

  constructor() {
    for (const name of ['vms', 'workspaces', 'sockets']) mkdirSync(join(this.#directory, name));
    for (const name of ['ram', 'image', 'base', 'overlay']) writeFileSync(join(this.#directory, name), name);
    this.#assembler = new VmAssembler(this.#parts());
    const info = {
      id: ID,
      state: 'creating' as const,
      image: 'i',
      vcpus: 1,
      mem_mib: 1,
      disk_mib: 64,
      timings_ms: {},
    };
    const hooks = {
      note: () => undefined,
      endEgress: async () => undefined,
      recordEnd: () => undefined,
      groupUsage: () => ({ cpuMs: undefined, memPeakBytes: undefined }),
      findRollback: () => undefined,
    };
    this.driver = new VmDriver('u1', { info, egress: NO_RULES, counters: TEMPLATE_COUNTERS, hooks, log });
    this.driver.session = async () =>
      ({ answerTimeoutMs: 1, call: (...args: unknown[]) => this.#answer(args) }) as unknown as AgentSession;
  }

  /** A template has a disk of 64 MiB. */
  assemble(kind: 'template' | 'capture', diskMiB = 64): Promise<AssembledVm> {
    const at = (name: string): string => join(this.#directory, name);
    const blueprint = {
      machine: 'm',
      image: { reference: 'i', digest: 'd', config: { env: { OWN: '1' }, user: '', workdir: '/' } },
      shape: { accelerator: 'tcg', vcpus: 1, memMiB: 1, diskMiB },
      ...(kind === 'template' ? { templateKey: 't', savedDiskMiB: 64 } : {}),
      files: {
        ramPath: at('ram'),
        imagePath: at('image'),
        scratch: {
          basePath: at('base'),
          frozen: [],
          ...(kind === 'template' ? { topPath: at('overlay') } : {}),
        },
      },
      counters: TEMPLATE_COUNTERS,
    } as unknown as Blueprint;
    return this.#assembler.assemble(this.driver, blueprint, { timer: new StepTimer('test') });
  }

  wake(assembled: AssembledVm): Promise<void> {
    return this.#assembler.wake(assembled, { timer: new StepTimer('test') });
  }

  get record() {
    return findVmRecord(this.#assembler.directoryOf('u1').path);
  }

  [Symbol.dispose](): void {
    rmSync(this.#directory, { recursive: true });
  }

  async #answer([, path, body]: unknown[]): Promise<unknown> {
    // The clock is read again after a slow answer.
    if (path !== '/ping' || this.order.at(-1) !== path) this.order.push(String(path));
    if (path !== '/resume') return {};
    this.told.push(body);
    await this.resume();
    return {};
  }

  #parts(): AssemblyParts {
    const at = (name: string): string => join(this.#directory, name);
    const vm = {
      identity: { pid: process.pid, startTicks: 0 },
      ended: new Promise(() => undefined),
      continue: async () => void this.order.push('cont'),
      kill: async () => void this.order.push('kill'),
      usage: () => ({ cpuMs: 0, memBytes: 8, memPeakBytes: 0 }),
      disk: {
        grow: async (bytes: number) => void this.order.push(`disk of ${bytes / 1024 / 1024} MiB`),
      },
    };
    const parts = {
      network: {
        acquire: async () => ({ index: TAP_SLOTS, tap: undefined }),
        setEgress: async (unit: string, { vmId, egress }: { vmId: string; egress: VmEgress }) => {
          this.order.push(`egress of ${unit} for ${vmId}`);
          await setImmediate();
          await this.setEgress(egress);
          this.order.push(`in force: ${egress.network.default}`);
        },
      },
      vmm: { restore: async () => vm },
      cgroups: { directoriesOf: () => [], create: async () => [], remove: async () => undefined },
      accounts: { ofSlot: () => UID },
      vmsDirectory: at('vms'),
      workspaces: {
        makePlace: () => ({ overlayDirectory: at('workspaces'), serverDirectory: at('workspaces') }),
        leave: () => undefined,
      },
      socketsDirectory: at('sockets'),
      log,
    };
    return parts as unknown as AssemblyParts;
  }
}

test('saved programs run only after the rules of their sandbox are in force', async () => {
  using under = new Assembly();
  under.driver.claim(under.driver.info, DENY_ALL);
  await under.wake(await under.assemble('capture'));
  assert.deepEqual(under.order, [`egress of u1 for ${ID}`, 'in force: deny', 'cont', '/ping', '/resume']);
  assert.deepEqual(under.record?.egress, { network: DENY_ALL.network, grants: [] });
});

test('saved programs do not run if the rules cannot be put in force', async () => {
  using under = new Assembly();
  under.driver.claim(under.driver.info, DENY_ALL);
  under.setEgress = async () => Promise.reject(new Error('no nft'));
  await assert.rejects(under.assemble('capture'), /no nft/u);
  assert.ok(!under.order.includes('cont'));
});

test('a warm VM wakes for its sandbox only after its rules are in force', async () => {
  using under = new Assembly();
  const assembled = await under.assemble('template');
  assert.deepEqual(under.order, ['cont', '/ping']);
  under.driver.claim(under.driver.info, DENY_ALL);
  under.setEgress = async () => Promise.reject(new Error('no nft'));
  await assert.rejects(under.wake(assembled), /no nft/u);
  assert.ok(!under.order.includes('/resume'));
  under.setEgress = async () => undefined;
  await under.wake(assembled);
  assert.deepEqual(under.order.slice(-2), ['in force: deny', '/resume']);
});

test('a sandbox without rules is announced while it resumes, and also starts if that fails', async () => {
  using under = new Assembly();
  const assembled = await under.assemble('template');
  under.setEgress = async () => Promise.reject(new Error('the egress process is away'));
  await under.wake(assembled);
  assert.deepEqual(under.order.slice(2), [`egress of u1 for ${ID}`, '/resume']);
  assert.equal(under.driver.phase, 'running');
});

test('the environment of the image overrides placeholders, and neither resume nor record holds the secret', async () => {
  using under = new Assembly();
  const [service] = BUILTIN_SERVICES;
  const grants = [{ service: service!, endpoints: null, secret: 'canary-3' }];
  const assembled = await under.assemble('template');
  under.driver.claim(under.driver.info, { ...NO_RULES, grants });
  await under.wake(assembled);
  const [{ env }] = under.told as [{ env: Record<string, string> }];
  assert.equal(env['OWN'], '1');
  assert.ok(Object.values(env).some((value) => value.includes(`placeholder-${ID}`)));
  assert.ok(Object.values(env).some((value) => value.startsWith('http://169.254.169.254:8014/')));
  assert.equal(under.record?.egress?.grants.length, 1);
  assert.doesNotMatch(JSON.stringify([env, under.record]), /canary/u);
});

test('a disk larger than its template’s grows while the guest runs, before code of the sandbox', async () => {
  using under = new Assembly();
  await under.wake(await under.assemble('template', 100));
  assert.deepEqual(
    under.order.filter((step) => !step.startsWith('egress')),
    ['cont', '/ping', 'disk of 100 MiB', '/resume', 'in force: allow'],
  );
  const [{ disk_bytes: bytes }] = under.told as [{ disk_bytes: number }];
  assert.equal(bytes, 100 * 1024 * 1024);
  assert.equal(under.record?.shape.diskMiB, 100);
});

test('a warm VM grows to the disk size of its sandbox', async () => {
  using under = new Assembly();
  const warm = await under.assemble('template');
  const { blueprint } = warm;
  await under.wake({ ...warm, blueprint: { ...blueprint, shape: { ...blueprint.shape, diskMiB: 200 } } });
  assert.ok(under.order.includes('disk of 200 MiB'));
  assert.equal(under.record?.shape.diskMiB, 200);
});

test('a disk of the size of its template or capture is not grown', async () => {
  for (const [kind, diskMiB] of [
    ['template', 64],
    ['capture', 100],
  ] as const) {
    using under = new Assembly();
    await under.wake(await under.assemble(kind, diskMiB));
    const [request] = under.told as Record<string, unknown>[];
    assert.ok(!under.order.some((step) => step.startsWith('disk')));
    assert.ok(request !== undefined && !('disk_bytes' in request));
    assert.equal(under.record?.shape.diskMiB, diskMiB);
  }
});

test('a destroyed sandbox does not wait until its disk has grown', { timeout: 20_000 }, async () => {
  using under = new Assembly();
  const assembled = await under.assemble('template', 100);
  const asked = Promise.withResolvers<void>();
  under.resume = () => {
    asked.resolve();
    return new Promise(() => undefined);
  };
  const waking = under.wake(assembled);
  under.driver.trackCreation(waking);
  await asked.promise;
  const ended = under.driver.end('destroyed');
  await assert.rejects(waking, { code: 'invalid_state' });
  assert.equal((await ended).reason, 'destroyed');
  assert.equal(under.order.at(-1), 'kill');
});
