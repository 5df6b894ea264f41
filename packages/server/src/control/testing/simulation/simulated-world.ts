/**
 * The surroundings of the real control in a simulation, and their faults: a host with its clocks, the runner and its
 * VMs, and control itself, a process that can be killed. It keeps how long each VM truly ran.
 */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { existsSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { SandboxRecord, SnapshotRecord } from '@coppice/contract';
import { sql } from 'kysely';
import type { HostMoment } from '../../../lib/host-clock.ts';
import type { ControlLimits } from '../../control-config.ts';
import type { DiskStep } from '../../disks/steps.ts';
import type { RecordStep } from '../../sandbox/record/steps.ts';
import { prepareHarness, waitFor, type ControlHarness } from '../control-harness.ts';
import { prepareControl, type StandbyControl } from '../controls/spawn-control.ts';
import { assertByTable, beginStateLog } from '../state-log.ts';
import { readAuditSecret } from '../verify-log.ts';
import { compareStories, findDifferences } from './agreement.ts';
import { compareCommands } from './command-agreement.ts';
import { compareEvents } from './event-agreement.ts';
import { compareDisks } from './disk-agreement.ts';
import { readBills, type Bills } from './bills.ts';
import type { Bounds } from './ran-for.ts';
import { parseReply, type CallOptions, type Reply, type RestingService } from './resting-service.ts';

const LIMITS: Partial<ControlLimits> = {
  requestsPerSecond: 0,
  reconcileIntervalMs: 50,
  // The clock stands still at rest, so a grace would not end there.
  captureGraceMs: 0,
  disksPerOrganization: 0,
  diskGbPerOrganization: 0,
  diskDetachDeadlineMs: 1000,
  runnerOutageDeadlineMs: 1500,
};
const FIRST_BOOT_MS = 60_000;
const START_WALL_MS = Date.UTC(2026, 0, 1);
/** Time in which a control with work to do sends a request to the runner, or gets an answer of the database. */
const QUIET_MS = 40;
const SETTLE_MS = 30_000;
const REACH_MS = 500;
/** Time in which the work that control does by itself, every 50 ms, reaches a step twice. */
const REACH_AFTERWARDS_MS = 120;
const POLL_MS = 2;
/** Events are sent again after a pause. */
const AGREE_MS = 15_000;
/** Control measures billed time, and learns of changes a moment later. */
const BILL_TOLERANCE_MS = 1000;
const ALIVE = '/v1/runs?limit=500&status=creating&status=running&status=hibernated';

export class SimulatedWorld implements RestingService, AsyncDisposable {
  readonly harness: ControlHarness;
  /** Milliseconds for which a VM of each sandbox ran. */
  readonly ranMs = new Map<string, number>();
  /** The part of it in which no control ran that could record the resume: it is not billed. */
  readonly #unheardMs = new Map<string, number>();
  readonly #auditSecrets = new Map<string, string>();
  /** The fault directory, whose files make controls hold at a step. */
  readonly #faults: string;
  /** The next control: it loads its modules, which is most of a start, while this one serves. */
  #standby: StandbyControl | undefined;
  readonly #agreeMs: number;
  #boots = 0;
  #host: HostMoment = { bootId: 'boot-0', bootMs: FIRST_BOOT_MS, wallMs: START_WALL_MS };

  private constructor(harness: ControlHarness, { faults, agreeMs }: { faults: string; agreeMs: number }) {
    this.harness = harness;
    this.#agreeMs = agreeMs;
    this.#faults = faults;
    harness.runner.host = () => this.#host;
  }

  static async start({ agreeMs = AGREE_MS } = {}): Promise<SimulatedWorld> {
    const harness = await prepareHarness(LIMITS);
    const faults = await mkdtemp(join(tmpdir(), 'coppice-simulation-'));
    const world = new SimulatedWorld(harness, { faults, agreeMs });
    await harness.runner.start();
    {
      await using db = harness.openDatabase();
      await beginStateLog(db);
    }
    await world.startControl();
    return world;
  }

  get host(): HostMoment {
    return this.#host;
  }

  get isServing(): boolean {
    return this.harness.spawned !== undefined;
  }

  async startControl(): Promise<void> {
    const { harness } = this;
    const standby = this.#standby ?? prepareControl(this.#faults);
    this.#standby = undefined;
    harness.spawned = await standby.serve(harness.config, {
      onLog: (line) => void harness.logLines.push(line),
      moment: this.#host,
    });
    this.#standby = prepareControl(this.#faults);
  }

  async killControl(): Promise<void> {
    const { spawned } = this.harness;
    this.harness.spawned = undefined;
    await spawned?.kill();
  }

  /**
   * Kills control when it reaches `step` in the work that `act` begins, or, if it does not, soon after `act` has ended.
   * Returns whether control reached the step.
   */
  async killControlAt(step: RecordStep | DiskStep, act: () => Promise<unknown>): Promise<boolean> {
    const arrived = join(this.#faults, `at-${step}`);
    await rm(arrived, { force: true });
    await writeFile(join(this.#faults, `hold-${step}`), '');
    const acting = act();
    let end = performance.now() + REACH_MS;
    const shorten = (): void => void (end = Math.min(end, performance.now() + REACH_AFTERWARDS_MS));
    void acting.then(shorten, shorten);
    while (!existsSync(arrived) && performance.now() < end) await delay(POLL_MS);
    const isThere = existsSync(arrived);
    await this.killControl();
    await rm(join(this.#faults, `hold-${step}`));
    await acting;
    return isThere;
  }

  async call(method: string, path: string, options: CallOptions = {}): Promise<Reply | undefined> {
    if (!this.isServing) return undefined;
    try {
      const response = await this.harness.fetch(method, path, options);
      return { status: response.status, headers: response.headers, text: await response.text() };
    } catch {
      return undefined;
    }
  }

  /** Lets time pass. Work that falls due meanwhile is done at its time. */
  async pass(ms: number): Promise<void> {
    await this.#waitUntilHeard();
    const { spawned } = this.harness;
    let left = ms;
    while (left > 0) {
      const dueInMs = (await spawned?.tellClock({ advanceMs: 0 })) ?? Infinity;
      const step = Math.min(left, Math.max(1, dueInMs));
      this.#move(step);
      left -= step;
      await spawned?.tellClock({ advanceMs: step });
      if (dueInMs <= step) await this.settle();
    }
  }

  #move(ms: number): void {
    const { bootId, bootMs, wallMs } = this.#host;
    this.#host = { bootId, bootMs: bootMs + ms, wallMs: wallMs + ms };
    for (const id of this.harness.runner.vms.keys()) addMs(this.ranMs, id, ms);
    if (!this.isServing) for (const id of this.#findResumed()) addMs(this.#unheardMs, id, ms);
  }

  /** Finds VMs that run again while their hibernation exists: control removes it once it has recorded the resume. */
  #findResumed(): string[] {
    const { vms, captures } = this.harness.runner;
    const saved = [...captures.saved.values()].filter(({ kind }) => kind === 'hibernation');
    return saved.flatMap(({ vm_id: id }) => (vms.has(id) ? id : []));
  }

  /**
   * Waits until control has seen which hibernated sandboxes run. It sees that within milliseconds after it has started,
   * or connected to the runner again. If simulated hours passed meanwhile, they would rightly not be billed.
   */
  async #waitUntilHeard(): Promise<void> {
    const { vms } = this.harness.runner;
    if (!this.isServing || this.#findResumed().length === 0) return;
    await waitFor(
      'control to see which hibernated sandboxes run',
      async () => {
        const hibernated = await this.#list<SandboxRecord>('/v1/runs?limit=500&status=hibernated');
        return hibernated?.every(({ id }) => !vms.has(id)) ?? false;
      },
      SETTLE_MS,
    );
  }

  async setWall(byMs: number): Promise<void> {
    this.#host = { ...this.#host, wallMs: this.#host.wallMs + byMs };
    await this.harness.spawned?.tellClock({ wallMs: this.#host.wallMs });
  }

  /** Ends all connections to the database, which accepts new ones. */
  async breakDatabase(): Promise<void> {
    await using db = this.harness.openDatabase();
    await sql`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
      WHERE datname = current_database() AND pid <> pg_backend_pid()`.execute(db);
  }

  /** Stops everything at once, and starts it again after `ms`, without the VMs. */
  async reboot(ms: number): Promise<void> {
    const { runner } = this.harness;
    await this.killControl();
    await runner.stop();
    const lost = [...runner.vms.keys()];
    runner.vms.clear();
    this.#boots += 1;
    this.#host = { bootId: `boot-${this.#boots}`, bootMs: FIRST_BOOT_MS, wallMs: this.#host.wallMs + ms };
    for (const id of lost) runner.endVm(id, 'vmm_lost');
    await runner.start();
    await this.startControl();
  }

  /** Waits until control and runner agree, and no operation is running. */
  async settle(): Promise<void> {
    const { runner } = this.harness;
    let seen = -1;
    await waitFor(
      'control to be at rest',
      async () => {
        const asked = runner.requests.filter((request) => !request.startsWith('GET ')).length;
        const isQuiet = asked === seen;
        seen = asked;
        const listed = await this.#list<SandboxRecord>(ALIVE);
        const isBusy = listed?.some((one) => this.#isBusy(one)) ?? true;
        if (isQuiet && !isBusy) return true;
        await delay(QUIET_MS);
        return false;
      },
      SETTLE_MS,
    );
  }

  /** Whether a sandbox is busy, or has fallen due, even before control acts on it. Control's clock is the host's. */
  #isBusy({ status, operation, expires_at: end }: SandboxRecord): boolean {
    const isDue = end !== null && Date.parse(end) <= this.#host.wallMs;
    return status === 'creating' || operation !== null || isDue;
  }

  async assertAgreement(): Promise<void> {
    let differences: string[] = [];
    const look = async (): Promise<boolean> => {
      differences = await this.#findDifferences();
      return differences.length === 0;
    };
    await waitFor('agreement', look, this.#agreeMs).catch((error: unknown) => {
      throw new Error(differences.join('\n'), { cause: error });
    });
    await using db = this.harness.openDatabase();
    await assertByTable(db);
  }

  async #findDifferences(): Promise<string[]> {
    const { vms, captures } = this.harness.runner;
    const records = await this.#list<SandboxRecord>(ALIVE);
    const snapshots = await this.#list<SnapshotRecord>('/v1/snapshots?limit=500');
    if (records === undefined || snapshots === undefined) return ['the lists are not answered'];
    await using db = this.harness.openDatabase();
    return findDifferences([
      ...(await compareDisks(db, this.harness.runner.disks)),
      ...(await compareCommands(db, this.harness.runner)),
      ...(await compareEvents(db)),
      ...compareStories({
        records: records.map(({ id, status }) => `${id} ${status}`),
        snapshots: snapshots.map(({ id }) => id),
        vms: [...vms.values()].map(({ id, state }) => `${id} ${state}`),
        captures: [...captures.saved.values()].map(({ id, kind, vm_id: vmId }) => ({ id, kind, vmId })),
      }),
    ]);
  }

  async #list<T>(path: string): Promise<T[] | undefined> {
    const reply = await this.call('GET', path);
    return reply?.status === 200 ? (parseReply(reply) as T[]) : undefined;
  }

  async readAuditSecret(keyId: string): Promise<string> {
    const known = this.#auditSecrets.get(keyId) ?? (await readAuditSecret(this.harness, keyId));
    this.#auditSecrets.set(keyId, known);
    return known;
  }

  async readBills(ids: readonly string[] | 'all'): Promise<Bills> {
    await using db = this.harness.openDatabase();
    return await readBills(db, ids);
  }

  findRanFor(id: string): Bounds {
    const ranMs = this.ranMs.get(id) ?? 0;
    const atLeastMs = ranMs - (this.#unheardMs.get(id) ?? 0);
    return { atLeastMs: atLeastMs - BILL_TOLERANCE_MS, atMostMs: ranMs + BILL_TOLERANCE_MS };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.killControl();
    await this.#standby?.[Symbol.asyncDispose]();
    await this.harness[Symbol.asyncDispose]();
    await rm(this.#faults, { recursive: true, force: true });
  }
}

function addMs(times: Map<string, number>, id: string, ms: number): void {
  times.set(id, (times.get(id) ?? 0) + ms);
}
