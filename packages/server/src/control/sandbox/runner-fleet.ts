/**
 * The runners of this control: it takes those that no control owns, adopts their sandboxes, and keeps a link with each.
 *
 *     runner of this machine ─┐
 *     joined, without owner  ─┴─► claimed ─► its sandboxes adopted ─► link
 *     revoked, or joined again ─► link closed, its sandboxes forgotten
 *     revoked ─► the leading control: those that ran are lost, the others belong to one of its runners
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { Logger } from 'pino';
import type { RunnerIdentity } from '../../lib/protocol/runner-protocol.ts';
import type { Leadership } from '../ownership/leadership.ts';
import type { JoinedRunner, RunnerClaims } from '../ownership/runner-claims.ts';
import type { RunnerClient } from '../placement/runner-client.ts';
import { OwnedRunner } from '../runners/owned-runner.ts';
import type { Runners } from '../runners/runners.ts';
import type { Clock } from '../time/clock.ts';
import type { LiveDrivers } from './live/live-drivers.ts';
import { Slots } from '../../lib/waiting/slots.ts';
import { drainRunner } from './drain-runner.ts';
import type { LinkKind, RunnerLink } from './runner-link.ts';

const LOOK_EVERY_MS = 1_000;
/** Each needs a few statements, and there are ten connections. */
const TAKEN_AT_ONCE = 16;
/** A thousand handshakes and rosters at once would keep this process from renewing its lease in time. */
const CONNECTED_AT_ONCE = 16;
const DRAIN_EVERY_MS = 10_000;
/** Of a control that is alone with the runner of its machine: it only notes whether the operator has cordoned it. */
const REST_MS = 5_000;

export interface OpenedClient extends Disposable {
  client: RunnerClient;
}

export interface RunnerFleetParts {
  runners: Runners;
  claims: RunnerClaims;
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
  readonly #parts: RunnerFleetParts;
  readonly #stop = new AbortController();
  readonly #members = new Map<string, Member>();
  readonly #replaced = Promise.withResolvers<Error>();
  readonly #draining = new Set<string>();
  readonly #starts = new Slots('connections with runners', {
    maxRunning: CONNECTED_AT_ONCE,
    maxWaiting: Infinity,
  });
  #isLocalTaken = false;
  #isStarted = false;
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
      await delay(isAlone ? REST_MS : LOOK_EVERY_MS, undefined, { signal }).catch(() => undefined);
      if (signal.aborted) return;
      await this.#try('runners could not be taken', () => this.open());
      await this.#try('what runners have left could not be taken', () => this.#buryRevoked());
      await this.#try('cordoned runners could not be found', () => this.#noteClosed());
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
    if (local === undefined || this.#isLocalTaken) return;
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
      if (this.#stop.signal.aborted) return;
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
