/**
 * The runners of this control: it takes those that no control owns, adopts their sandboxes, and keeps a link with each.
 *
 *     runner of this machine ─┐
 *     joined, without owner  ─┴─► claimed ─► its sandboxes adopted ─► link
 *     revoked, or joined again ─► link closed, its sandboxes forgotten
 *     joined, and another control has fewer ─► its requests end, its sandboxes are forgotten ─► that control's
 *     revoked ─► the leading control: those that ran are lost, the others belong to one of its runners
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { Logger } from 'pino';
import type { RunnerIdentity } from '../../lib/protocol/runner-protocol.ts';
import { Slots } from '../../lib/waiting/slots.ts';
import type { Leadership } from '../ownership/leadership.ts';
import { HANDOVER_GAP_MS, type RunnerBalance } from '../ownership/runner-balance.ts';
import type { JoinedRunner, RunnerClaims } from '../ownership/runner-claims.ts';
import type { RunnerClient } from '../placement/runner-client.ts';
import { OwnedRunner } from '../runners/owned-runner.ts';
import type { Runners } from '../runners/runners.ts';
import type { Clock } from '../time/clock.ts';
import type { LiveDrivers } from './live/live-drivers.ts';
import type { SandboxDriver } from './live/sandbox-driver.ts';
import { drainRunner } from './drain-runner.ts';
import { chooseToGive, waitUntilQuiet } from './hand-over.ts';
import type { LinkKind, RunnerLink } from './runner-link.ts';

const LOOK_EVERY_MS = 1_000;
/** Each needs a few statements, and there are ten connections. */
const TAKEN_AT_ONCE = 16;
/** A thousand handshakes and rosters at once would keep this process from renewing its lease in time. */
const CONNECTED_AT_ONCE = 16;
const DRAIN_EVERY_MS = 10_000;
/** Of a control that is alone with the runner of its machine: it only notes whether the operator has cordoned it. */
const REST_MS = 5_000;

/** Longer than a control uses the owner that it has found. */
const FORWARDED_MS = 500;
/** Requests that waited for a runner in vain are not held back again at once. */
const BUSY_REST_MS = 60_000;

export interface OpenedClient extends Disposable {
  client: RunnerClient;
}

export interface RunnerFleetParts {
  runners: Runners;
  claims: RunnerClaims;
  balance: RunnerBalance;
  drivers: Pick<LiveDrivers, 'load' | 'adopt' | 'unload' | 'loseAll' | 'listAt'>;
  leadership: Leadership;
  /** The client of the runner on this machine; undefined if there is none. */
  local: RunnerClient | undefined;
  /** Opens a client for a runner of another machine. Undefined if this control takes none. */
  connect: ((runner: JoinedRunner) => OpenedClient) | undefined;
  region: string;
  nodeId: string;
  clock: Clock;
  log: Logger;
  openLink: (runner: OwnedRunner, kind: LinkKind) => RunnerLink;
  /** Puts the captures of a runner into the object store until it is disposed. Undefined without one. */
  openStorage: ((runner: OwnedRunner) => AsyncDisposable) | undefined;
  /** Called when runners are taken, before their sandboxes are adopted. */
  beforeLoad: () => Promise<void>;
}

interface Member {
  link: RunnerLink;
  storage: AsyncDisposable | undefined;
  /** Undefined for the runner of this machine. */
  joined: JoinedRunner | undefined;
  close: () => void;
}

export class RunnerFleet implements AsyncDisposable {
  /** Runners that this control has got, and given to another one. */
  readonly counts = { taken: 0, handedOver: 0 };
  readonly #parts: RunnerFleetParts;
  readonly #stop = new AbortController();
  readonly #members = new Map<string, Member>();
  readonly #replaced = Promise.withResolvers<Error>();
  readonly #draining = new Set<string>();
  /** When each runner whose requests did not end in time may be tried again, by the monotonic clock. */
  readonly #busyUntil = new Map<string, number>();
  #balanceAt = 0;
  #woken = new AbortController();
  readonly #starts = new Slots('connections with runners', {
    maxRunning: CONNECTED_AT_ONCE,
    maxWaiting: Infinity,
  });
  #isLocalTaken = false;
  #isStarted = false;
  /** Whether this control is about to end. */
  #isLeaving = false;
  #loop: Promise<void> = Promise.resolve();

  constructor(parts: RunnerFleetParts) {
    this.#parts = parts;
  }

  /** Takes the runners that it may take now: the one of this machine, unless it is new and does not answer, and joined ones. */
  async open(): Promise<void> {
    await this.#takeLocal();
    await this.#takeJoined();
  }

  /** Resolves after the first attempt to connect with the runners that it has, whatever its outcome. */
  async start(): Promise<void> {
    this.#isStarted = true;
    await Promise.all([...this.#members.entries()].map(([id, { link }]) => this.#startLink(id, link)));
    this.#loop = this.#keep();
  }

  /** Takes and gives no more runners: this control is about to end, and others take all of them then. */
  leave(): void {
    this.#isLeaving = true;
  }

  /** Looks now for runners that have no owner. */
  wake(): void {
    this.#woken.abort();
  }

  /** Resolves when another runner is in the place of the one of this machine: only a new start adopts its sandboxes. */
  get replaced(): Promise<Error> {
    return this.#replaced.promise;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#loop;
    await Promise.all([...this.#members.keys()].map((id) => this.#drop(id)));
  }

  async #keep(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      const isAlone = this.#parts.connect === undefined && this.#isLocalTaken;
      const either = AbortSignal.any([signal, this.#woken.signal]);
      await delay(isAlone ? REST_MS : LOOK_EVERY_MS, undefined, { signal: either }).catch(() => undefined);
      this.#woken = new AbortController();
      if (signal.aborted) return;
      await this.#try('runners could not be taken', () => this.open());
      await this.#try('what runners have left could not be taken', () => this.#buryRevoked());
      await this.#try('cordoned runners could not be found', () => this.#noteClosed());
      await this.#try('runners of other controls could not be found', () => this.#noteElsewhere());
      await this.#try('a runner could not be handed over', () => this.#balance());
    }
  }

  async #try(what: string, work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      if (!this.#stop.signal.aborted) this.#parts.log.warn({ err: error }, `${what}; control tries again`);
    }
  }

  async #takeLocal(): Promise<void> {
    const { local, connect, claims, region, nodeId } = this.#parts;
    if (local === undefined || this.#isLocalTaken || this.#isLeaving) return;
    const seen = await this.#identify(local);
    const id = seen?.runner_id ?? (await claims.findLocal(nodeId));
    if (id === undefined) return;
    const isAlone = connect === undefined;
    const outcome = await claims.takeLocal({ id, seen: seen?.epoch, region, nodeId, isAlone });
    if (outcome === 'elsewhere') return;
    if (outcome === 'taken') {
      await this.#parts.beforeLoad();
      await this.#adopt(id, local, { joined: undefined, close: () => undefined });
    }
    this.#isLocalTaken = true;
  }

  /** Asks the runner of this machine what it is. Undefined if it does not answer. */
  async #identify(local: RunnerClient): Promise<RunnerIdentity | undefined> {
    try {
      return await local.identify();
    } catch (error) {
      this.#parts.log.debug({ err: error }, 'the runner of this machine does not answer yet');
      return undefined;
    }
  }

  async #takeJoined(): Promise<void> {
    const { claims, connect } = this.#parts;
    if (connect === undefined) return;
    const joined = new Map((await claims.listJoined()).map((runner) => [runner.id, runner]));
    for (const [id, member] of this.#members) {
      if (member.joined === undefined || isSame(member.joined, joined.get(id))) continue;
      await this.#drop(id);
      this.#parts.drivers.unload(id);
    }
    const free = [...joined.values()].filter(({ id, isFree }) => isFree && !this.#members.has(id));
    for (let at = 0; at < free.length; at += TAKEN_AT_ONCE) {
      if (this.#stop.signal.aborted || this.#isLeaving) return;
      // What it has claimed it adopts even if it begins to leave meanwhile: until its end, requests are forwarded to it.
      await this.#takeAll(free.slice(at, at + TAKEN_AT_ONCE), connect);
    }
  }

  /** Takes runners without an owner at once: one after the other, a thousand would wait for minutes after a control was killed. */
  async #takeAll(
    free: readonly JoinedRunner[],
    connect: (runner: JoinedRunner) => OpenedClient,
  ): Promise<void> {
    const claimed = await Promise.all(
      free.map(async (runner) => ({ runner, epoch: await this.#parts.claims.claim(runner.id) })),
    );
    const own = claimed.flatMap(({ runner, epoch }) => (epoch === undefined ? [] : [{ runner, epoch }]));
    if (own.length === 0) return;
    await this.#parts.beforeLoad();
    const adopted = await Promise.allSettled(
      own.map(({ runner, epoch }) => {
        const opened = connect(runner);
        opened.client.useEpoch(epoch);
        const close = (): void => opened[Symbol.dispose]();
        return this.#adopt(runner.id, opened.client, { joined: runner, close });
      }),
    );
    const failed = adopted.find((outcome) => outcome.status === 'rejected');
    if (failed !== undefined) throw failed.reason;
  }

  /** While no runner is connected here, requests go to one of another control. */
  async #noteElsewhere(): Promise<void> {
    const { connect, claims, runners } = this.#parts;
    if (connect === undefined) return;
    const isServed = runners.listConnected().length > 0;
    runners.elsewhere = isServed ? undefined : await claims.findAnsweringElsewhere();
  }

  /** Gives a runner to a control that has fewer. */
  async #balance(): Promise<void> {
    const { connect, balance, runners, drivers } = this.#parts;
    if (connect === undefined || this.#members.size < 2 || this.#isLeaving) return;
    if (performance.now() < this.#balanceAt) return;
    this.#balanceAt = performance.now() + HANDOVER_GAP_MS;
    const heir = await balance.findHeir();
    if (heir === undefined) return;
    const movable = new Set(await balance.listMovable());
    const rested = runners
      .list()
      .filter(({ id }) => movable.has(id) && performance.now() >= (this.#busyUntil.get(id) ?? 0));
    const runner = chooseToGive(rested, (id) => drivers.listAt(id));
    if (runner === undefined || !(await balance.reserve(runner.id, heir))) return;
    try {
      await this.#handOver(runner, heir);
    } finally {
      runner.isLeaving = false;
      await this.#parts.claims.noteTaken(runner.id);
    }
  }

  async #handOver(runner: OwnedRunner, heir: string): Promise<void> {
    const { runners, drivers, balance, log } = this.#parts;
    const { id } = runner;
    const { signal } = this.#stop;
    // Other controls may have looked it up just before, and what they forward is served as before.
    await delay(FORWARDED_MS, undefined, { signal });
    runner.isLeaving = true;
    const sandboxes = (): SandboxDriver[] => drivers.listAt(id);
    const isKept = async (): Promise<boolean> => this.#isLeaving || balance.hasBuild(id);
    if (!(await waitUntilQuiet({ runner, sandboxes, isKept }, signal))) {
      this.#busyUntil.set(id, performance.now() + BUSY_REST_MS);
      log.debug({ runner_id: id }, 'the runner is in use, and stays for now');
      return;
    }
    this.#busyUntil.delete(id);
    // First: a request, or a round that is under way, could adopt a hibernated sandbox again.
    runners.delete(id);
    drivers.unload(id);
    await this.#drop(id);
    // Once more: an insert that was under way may have got a driver meanwhile.
    drivers.unload(id);
    // Otherwise this control takes it again.
    if (!(await balance.give(id, heir))) return;
    this.counts.handedOver += 1;
    log.info({ runner_id: id, control_id: heir }, 'the runner is handed over to a control that has fewer');
  }

  /** Keeps new VMs away from runners that are cordoned, and empties those that are drained. */
  async #noteClosed(): Promise<void> {
    const closed = new Map((await this.#parts.claims.listClosed()).map((runner) => [runner.id, runner]));
    for (const runner of this.#parts.runners.list()) {
      runner.isCordoned = closed.has(runner.id);
      if (closed.get(runner.id)?.isDraining === true) this.#drain(runner.id);
    }
  }

  #drain(id: string): void {
    if (this.#draining.has(id)) return;
    this.#draining.add(id);
    const { drivers, log } = this.#parts;
    const { signal } = this.#stop;
    // With a pause: a sandbox that could not be hibernated, or was woken, is not tried all the time.
    void drainRunner(drivers.listAt(id), log)
      .then(() => delay(DRAIN_EVERY_MS, undefined, { signal }))
      .catch(() => undefined)
      .finally(() => this.#draining.delete(id));
  }

  /** Gives what revoked runners have left to a runner of this control, after the ends of the sandboxes that ran there. */
  async #buryRevoked(): Promise<void> {
    const { leadership, runners, claims, drivers } = this.#parts;
    const [heir] = runners.listConnected();
    if (heir === undefined || !leadership.isLeading) return;
    for (const id of await claims.listLeft()) {
      // Their ends need nothing from a runner.
      const gone = new OwnedRunner(id, heir.client, this.#parts.clock);
      gone.isCordoned = true;
      runners.add(gone);
      try {
        await drivers.adopt(id);
        await drivers.loseAll(id);
      } finally {
        drivers.unload(id);
        runners.delete(id);
      }
      await claims.inherit(id, heir.id);
      await drivers.adopt(heir.id);
    }
  }

  async #adopt(id: string, client: RunnerClient, member: Omit<Member, 'link' | 'storage'>): Promise<void> {
    const { runners, drivers, clock, openLink, openStorage, log } = this.#parts;
    const runner = new OwnedRunner(id, client, clock);
    runners.add(runner);
    try {
      await drivers.load(id);
      await this.#parts.claims.noteTaken(id);
      runner.isCordoned = (await this.#parts.claims.listClosed()).some((closed) => closed.id === id);
    } catch (error) {
      drivers.unload(id);
      runners.delete(id);
      member.close();
      throw error;
    }
    const link = openLink(runner, member.joined === undefined ? 'local' : 'joined');
    if (member.joined === undefined) this.#replaced.resolve(link.replaced);
    this.#members.set(id, { ...member, link, storage: openStorage?.(runner) });
    this.counts.taken += 1;
    log.info({ runner_id: id }, 'this control has the runner');
    // One runner that does not answer must not keep the others waiting.
    if (this.#isStarted) void this.#startLink(id, link);
  }

  async #startLink(id: string, link: RunnerLink): Promise<void> {
    const begin = async (): Promise<void> => {
      // It may have been dropped meanwhile.
      if (this.#members.get(id)?.link === link) await link.start();
    };
    await this.#starts.run(this.#stop.signal, begin).catch((error: unknown) => {
      if (!this.#stop.signal.aborted) throw error;
    });
  }

  async #drop(id: string): Promise<void> {
    const member = this.#members.get(id);
    if (member === undefined) return;
    this.#members.delete(id);
    // First: what waits for an answer of the runner ends.
    member.close();
    await member.storage?.[Symbol.asyncDispose]();
    await member.link[Symbol.asyncDispose]();
    if (member.joined !== undefined && !this.#stop.signal.aborted) this.#parts.runners.delete(id);
  }
}

function isSame(one: JoinedRunner, other: JoinedRunner | undefined): boolean {
  return one.address === other?.address && one.fingerprint === other.fingerprint;
}
