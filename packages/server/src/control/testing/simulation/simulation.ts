/**
 * Runs random operations and faults on a real control with a real PostgreSQL, over many simulated hours. After every
 * few of them the service rests, and nothing that was answered may be missing (invariants.ts). The same seed makes the
 * same choices; requests that are open when a process is killed may end differently.
 */
import { DISK_STEPS, type DiskStep } from '../../disks/steps.ts';
import { RECORD_STEPS, type RecordStep } from '../../sandbox/record/steps.ts';
import { SeededChoice } from '../seeded-choice.ts';
import { assertBearable, Caller, type Request } from './caller.ts';
import { assertInvariants, assertKept } from './invariants.ts';
import { Ledger } from './ledger.ts';
import { DiskActs } from './disk-acts.ts';
import { parseReply, type Reply } from './resting-service.ts';
import type { SandboxRecord } from '@coppice/contract';
import { SimulatedWorld } from './simulated-world.ts';

const HOUR_MS = 3_600_000;
const STEPS_UNTIL_REST = 12;
const MAX_SANDBOXES = 8;
const MAX_AT_ONCE = 3;
const SHOWN_STEPS = 40;
const SHOWN_LOG_LINES = 20;
const STEP_NAMES = Object.keys({ ...RECORD_STEPS, ...DISK_STEPS }) as (RecordStep | DiskStep)[];

type Act = () => Promise<unknown>;

export interface Summary {
  seed: number;
  steps: number;
  rests: number;
  simulatedHours: number;
}

export class Simulation {
  readonly #world: SimulatedWorld;
  readonly #choice: SeededChoice;
  readonly #ledger = new Ledger();
  readonly #caller: Caller;
  readonly #disks: DiskActs;
  /** The steps so far, for people. */
  readonly #trace: string[] = [];
  readonly #summary: Summary;

  constructor(world: SimulatedWorld, seed: number) {
    this.#world = world;
    this.#choice = new SeededChoice(seed);
    const ask = (request: Request) => this.#ask(request);
    this.#caller = new Caller(ask, this.#ledger);
    this.#disks = new DiskActs(ask, this.#choice);
    this.#summary = { seed, steps: 0, rests: 0, simulatedHours: 0 };
  }

  /** Runs until `isOver`. Throws, with the last steps, when an invariant does not hold. */
  static async run(seed: number, isOver: (summary: Summary) => boolean): Promise<Summary> {
    await using world = await SimulatedWorld.start();
    const simulation = new Simulation(world, seed);
    try {
      while (!isOver(simulation.#summary)) await simulation.#round();
      await assertKept(world, simulation.#ledger);
      return simulation.#summary;
    } catch (error) {
      throw simulation.#explain(error);
    }
  }

  /**
   * Builds an error that begins with the broken invariant: a report of many failures shows the first lines of each.
   * Then come all faults, the requests to the sandboxes that the reason names, and everything of the last steps.
   */
  #explain(error: unknown): Error {
    const { seed, steps } = this.#summary;
    const reason = error instanceof Error ? error.message : String(error);
    const subjects = reason.match(/\brun[0-9a-f]{20}\b/gu) ?? [];
    const isOfThem = (line: string): boolean =>
      !line.includes(' /v1/') || subjects.some((id) => line.includes(id));
    const done = [...this.#trace.slice(0, -SHOWN_STEPS).filter(isOfThem), ...this.#trace.slice(-SHOWN_STEPS)];
    const said = this.#world.harness.logLines
      .filter((line) => !line.includes('"level":30'))
      .slice(-SHOWN_LOG_LINES);
    const text = [`seed ${seed}, after ${steps} steps: ${reason}`, ...done, ...said].join('\n');
    return new Error(text, { cause: error });
  }

  async #round(): Promise<void> {
    for (let step = 0; step < STEPS_UNTIL_REST; step += 1) {
      this.#summary.steps += 1;
      await this.#choice.of([
        () => this.#act(),
        () => this.#act(),
        () => this.#actTogether(),
        () => this.#fault(),
      ])();
      await this.#pass(this.#choice.below(3) === 0 ? HOUR_MS : 60_000);
    }
    await this.#rest();
  }

  async #pass(longestMs: number): Promise<void> {
    const ms = 1 + this.#choice.below(longestMs);
    this.#summary.simulatedHours += ms / HOUR_MS;
    await this.#world.pass(ms);
  }

  async #rest(): Promise<void> {
    if (!this.#world.isServing) await this.#world.startControl();
    await this.#world.settle();
    await assertInvariants(this.#world, this.#ledger);
    await this.#disks.assertKept(this.#world);
    this.#note('at rest');
    this.#summary.rests += 1;
  }

  async #act(): Promise<void> {
    await this.#chooseAct()();
  }

  async #actTogether(): Promise<void> {
    await Promise.all(this.#chooseActs(1 + this.#choice.below(MAX_AT_ONCE)).map((act) => act()));
  }

  /** Chooses acts on different sandboxes: the order of two acts on one would be unknown. */
  #chooseActs(count: number): Act[] {
    const taken = new Set<string>();
    return Array.from({ length: count }, () => this.#chooseAct(taken));
  }

  #chooseAct(taken = new Set<string>()): Act {
    if (this.#choice.below(4) === 0) return this.#disks.choose();
    const alive = this.#ledger.alive.filter((id) => !taken.has(id));
    if (alive.length === 0 || (alive.length < MAX_SANDBOXES && this.#choice.below(4) === 0))
      return this.#createAct();
    const id = this.#choice.of(alive);
    taken.add(id);
    const snapshotId = this.#choice.of([...this.#ledger.snapshots, 'snap0']);
    const count = 1 + this.#choice.below(3);
    const timeout = this.#choice.of([0, 60, 600]);
    const caller = this.#caller;
    const acts: Act[] = [
      () => caller.exec(id),
      () => caller.exec(id),
      () => caller.startCommand(id),
      () => caller.startCommand(id),
      async () => this.#endCommands(),
      async () => this.#endCommands(),
      () => caller.destroy(id),
      () => caller.snapshot(id),
      () => caller.hibernate(id),
      () => caller.resume(id),
      () => caller.resume(id, '?disk=fresh'),
      () => caller.fork(id, alive.length < MAX_SANDBOXES ? count : 1),
      async () => (alive.length < MAX_SANDBOXES ? caller.restore(snapshotId) : undefined),
      () => caller.rollBack(id, snapshotId),
      () => caller.deleteSnapshot(snapshotId),
      () => caller.change(id, { timeout }),
    ];
    return this.#choice.of(acts);
  }

  #createAct(): Act {
    const body = {
      image: 'node:22-slim',
      timeout: this.#choice.of([0, 60, 600]),
      auto_hibernate: this.#choice.below(3) === 0,
      ...this.#disks.chooseForCreate(),
      ...(this.#choice.below(3) === 0 ? { max_lifetime: 600 + this.#choice.below(7200) } : {}),
    };
    const key = `create-${this.#summary.steps}-${this.#choice.below(1_000_000)}`;
    return () => this.#caller.create(body, key);
  }

  async #fault(): Promise<void> {
    const { runner } = this.#world.harness;
    const step = this.#choice.of(STEP_NAMES);
    const byMs = (this.#choice.below(2) === 0 ? -1 : 1) * this.#choice.below(3 * HOUR_MS);
    const vm = this.#choice.of([...runner.vms.keys(), undefined]);
    const faults: [string, Act][] = [
      ['control is killed at ' + step, () => this.#killIn(step)],
      ['control is killed at ' + step, () => this.#killIn(step)],
      ['control is killed', () => this.#world.killControl()],
      ['the runner is away', () => this.#withoutRunner()],
      ['answers of the runner are lost', () => this.#withLostAnswers()],
      ['the clock is set', () => this.#world.setWall(byMs)],
      ['the database breaks its connections', () => this.#world.breakDatabase()],
      ['the host boots', () => this.#reboot()],
      ['a VM dies', async () => this.#loseVm(vm)],
    ];
    const [what, fault] = this.#choice.of(faults);
    this.#note(what);
    await fault();
    if (this.#world.isServing) return;
    await this.#pass(10 * 60_000);
    await this.#world.startControl();
  }

  async #killIn(step: RecordStep | DiskStep): Promise<void> {
    const acts = this.#chooseActs(MAX_AT_ONCE);
    const isThere = await this.#world.killControlAt(step, () => Promise.all(acts.map((act) => act())));
    if (isThere) this.#note('control reached the step');
  }

  async #withoutRunner(): Promise<void> {
    const { runner } = this.#world.harness;
    await runner.stop();
    await this.#act();
    await runner.start();
  }

  /** The runner does the work, but its answer is lost. */
  async #withLostAnswers(): Promise<void> {
    const { runner } = this.#world.harness;
    const lose = async (): Promise<void> => {
      runner.captures.reset();
      runner.disks.reset();
      await runner.stop();
      await runner.start();
    };
    runner.captures.beforeAnswer = lose;
    runner.disks.beforeAnswer = (what) => (what === 'GET' ? undefined : lose());
    await this.#actTogether();
    runner.captures.reset();
    runner.disks.reset();
  }

  async #reboot(): Promise<void> {
    for (const id of this.#ledger.alive) this.#ledger.noteVmKilled(id);
    await this.#world.reboot(this.#choice.below(5 * HOUR_MS));
  }

  #loseVm(id: string | undefined): void {
    if (id === undefined) return;
    this.#ledger.noteVmKilled(id);
    this.#world.harness.runner.endVm(id, 'vmm_lost');
  }

  /** Ends the commands of a guest that has any. */
  #endCommands(): void {
    const { commands, vms } = this.#world.harness.runner;
    const runningIn = (id: string) => commands.list(id).filter(({ exit }) => exit === undefined);
    const vm = this.#choice.of(
      [...vms.keys(), undefined].filter((id) => id === undefined || runningIn(id).length > 0),
    );
    if (vm === undefined) return;
    this.#note(`the commands of ${vm} end`);
    for (const command of runningIn(vm)) commands.end(vm, command, this.#choice.below(256));
  }

  async #ask(request: Request): Promise<Reply | undefined> {
    const { method, path, body, key } = request;
    const reply = await this.#world.call(method, path, {
      ...(body === undefined ? {} : { body }),
      ...(key === undefined ? {} : { headers: { 'idempotency-key': key } }),
    });
    this.#note(`${method} ${path} ${JSON.stringify(body ?? {})}: ${reply?.status ?? 'no answer'}`);
    if (reply !== undefined) {
      assertBearable(request, reply);
      if (reply.status === 201) this.#noteDisks(reply);
    }
    return reply;
  }

  #noteDisks(reply: Reply): void {
    const answered = parseReply(reply) as Partial<SandboxRecord> | Partial<SandboxRecord>[];
    for (const one of [answered].flat()) if (typeof one.disk === 'object') this.#disks.noteSandbox(one);
  }

  #note(what: string): void {
    const { bootId, bootMs } = this.#world.host;
    this.#trace.push(`${bootId} ${(bootMs / 1000).toFixed(1)} s: ${what}`);
  }
}
