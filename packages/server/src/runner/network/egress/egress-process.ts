/**
 * Keeps the egress process running, which handles all traffic of guests that the kernel does not forward. It has no
 * policy for an address that it did not receive, and nothing listens while it is down: guests are closed, never open.
 *
 *   start ──► ready ──► sent all guests ──► its ports in the table ──► serving ──► ended
 *     ▲                                                                              │
 *     └───────────────────── pause: 0.1 s, doubling to 5 s ──────────────────────────┘
 *
 * The policies of guests and their secrets are kept here, in memory only.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { AppError } from '@coppice/contract';
import type { Logger } from 'pino';
import type { EgressPorts, EgressStart, VmNote } from '../../../lib/protocol/egress-messages.ts';
import { withDeadline } from '../../../lib/waiting/deadline.ts';
import type { JudgedCounters, VmEgress } from '../../../lib/protocol/egress-protocol.ts';
import { EgressEndedError, EgressSession, type EgressProgram } from './egress-session.ts';

const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 5000;
const STABLE_AFTER_MS = 3000;
/** Time limit of a change, including the wait for a process that starts. */
const CHANGE_TIMEOUT_MS = 15_000;
/** Number of guests sent at once; a policy may have half a megabyte. */
const TOLD_AT_ONCE = 16;

/** A sandbox and its egress policy. */
export interface EgressGuest {
  vmId: string;
  egress: VmEgress;
}

export interface EgressProcessOptions {
  program: EgressProgram;
  /** Builds the first message to each process. */
  start: () => Promise<Omit<EgressStart, 'type'>>;
  /** Directs connections to these ports; settles when they do. Not called for the ports of the first process. */
  onPorts: (ports: EgressPorts) => Promise<void>;
  /** Settles when the notes are durable; until then the process delays actions that require a note. */
  onNotes: (notes: VmNote[]) => Promise<void>;
  log: Logger;
}

export class EgressProcess implements AsyncDisposable {
  readonly #options: EgressProcessOptions;
  readonly #guests = new Map<string, EgressGuest>();
  readonly #closing = new AbortController();
  /** The session that serves, or the next one. */
  #serving = Promise.withResolvers<EgressSession>();
  #session: EgressSession | undefined;
  #keeping: Promise<void> | undefined;

  private constructor(options: EgressProcessOptions) {
    this.#options = options;
  }

  /** Starts the first process. When it settles, the process is ready; the caller directs connections to its ports. */
  static async open(options: EgressProcessOptions): Promise<{ process: EgressProcess; ports: EgressPorts }> {
    const egress = new EgressProcess(options);
    const { session, ports } = await egress.#start();
    egress.#serving.resolve(session);
    egress.#keeping = egress.#keep(session);
    return { process: egress, ports };
  }

  /**
   * Sets the policy of a guest; settles when it is in force and open flows are judged again. After a rejection the
   * guest has no policy or its former one, until the policy is sent again: at the latest when the process restarts.
   */
  async setGuest(address: string, guest: EgressGuest): Promise<void> {
    this.#guests.set(address, guest);
    const said = await this.#ask({ type: 'guest', address, ...guest });
    if (said.type === 'done' && said.error !== undefined)
      throw new AppError('internal', `the egress process refused the policy of ${guest.vmId}: ${said.error}`);
  }

  /** Settles when all flows of the guest are closed and noted. A process that is down has none. */
  async forget(address: string): Promise<void> {
    if (!this.#guests.delete(address)) return;
    try {
      await this.#session?.ask({ type: 'forget', address });
    } catch (error) {
      if (!(error instanceof EgressEndedError)) throw error;
    }
  }

  /** Returns undefined when the process knows no guest at the address. */
  async readCounters(address: string): Promise<JudgedCounters | undefined> {
    const said = await this.#ask({ type: 'counters', address });
    return said.type === 'counters' ? (said.counters ?? undefined) : undefined;
  }

  /** Closes addresses; settles when open flows are judged again. The next process gets them from `start`. */
  async setClosed(closed: EgressStart['closed']): Promise<void> {
    await this.#ask({ type: 'closed', closed });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closing.abort();
    this.#serving.promise.catch(() => undefined);
    this.#serving.reject(new AppError('unavailable', 'the guest network is closing'));
    await this.#keeping;
  }

  /** Asks the process that serves, or the next one when it ends meanwhile. */
  #ask(question: Parameters<EgressSession['ask']>[0]): ReturnType<EgressSession['ask']> {
    const asking = async (): ReturnType<EgressSession['ask']> => {
      for (;;) {
        const session = await this.#serving.promise;
        try {
          return await session.ask(question);
        } catch (error) {
          if (!(error instanceof EgressEndedError)) throw error;
          await session.ended;
          this.#forgetSession(session);
        }
      }
    };
    return withDeadline('the egress process', CHANGE_TIMEOUT_MS, asking());
  }

  /** Forgets a session that ended: later requests wait for the next one. */
  #forgetSession(session: EgressSession): void {
    if (this.#session !== session) return;
    this.#session = undefined;
    if (!this.#closing.signal.aborted) this.#serving = Promise.withResolvers();
  }

  async #start(): Promise<{ session: EgressSession; ports: EgressPorts }> {
    const { program, start, onNotes, log } = this.#options;
    const started = await EgressSession.start({
      program,
      start: await start(),
      log,
      signal: this.#closing.signal,
      onNotes: ({ id, notes }, session) => {
        onNotes(notes).then(
          () => session.acknowledge(id),
          (error: unknown) =>
            log.error({ err: error, notes: notes.length }, 'notes of the egress process are lost'),
        );
      },
    });
    this.#session = started.session;
    return started;
  }

  async #keep(first: EgressSession): Promise<void> {
    const { log } = this.#options;
    const { signal } = this.#closing;
    let session: EgressSession | undefined = first;
    let pauseMs = FIRST_PAUSE_MS;
    while (!signal.aborted) {
      const servedFrom = performance.now();
      const how = session === undefined ? 'it could not be started' : await session.ended;
      if (session !== undefined) this.#forgetSession(session);
      if (signal.aborted) return;
      if (session !== undefined && performance.now() - servedFrom > STABLE_AFTER_MS) pauseMs = FIRST_PAUSE_MS;
      log.warn({ how, pause_ms: pauseMs }, 'the egress process ended; the runner restarts it');
      await delay(pauseMs, undefined, { signal }).catch(() => undefined);
      pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS);
      session = signal.aborted ? undefined : await this.#serveAgain();
    }
  }

  /** Starts a new session. On a failure, leaves no process and returns undefined. */
  async #serveAgain(): Promise<EgressSession | undefined> {
    const { log, onPorts } = this.#options;
    let session: EgressSession | undefined;
    try {
      const started = await this.#start();
      ({ session } = started);
      await this.#tellAll(session);
      await onPorts(started.ports);
      this.#serving.resolve(session);
      return session;
    } catch (error) {
      log.error({ err: error }, 'the egress process cannot be restarted');
      session?.kill();
      if (session !== undefined) this.#forgetSession(session);
      return undefined;
    }
  }

  /** Sends all guests, before connections reach the process. The caller of a change meanwhile sends it again. */
  async #tellAll(session: EgressSession): Promise<void> {
    const addresses = [...this.#guests.keys()];
    for (let from = 0; from < addresses.length; from += TOLD_AT_ONCE) {
      const some = addresses.slice(from, from + TOLD_AT_ONCE);
      await Promise.all(some.map((address) => this.#tellOne(session, address)));
    }
  }

  /** Sends one guest. A guest whose policy is refused has none; the others are sent all the same. */
  async #tellOne(session: EgressSession, address: string): Promise<void> {
    const guest = this.#guests.get(address);
    if (guest === undefined) return;
    const said = await session.ask({ type: 'guest', address, ...guest });
    if (said.type === 'done' && said.error !== undefined)
      this.#options.log.error({ vm: guest.vmId, error: said.error }, 'the egress process refused a policy');
  }
}
