/**
 * The runners of this control: it takes those that nobody owns, adopts their sandboxes, and keeps a link with each.
 *
 *     open    the runner of this machine, if it is known or answers: taken, its sandboxes adopted
 *     start   its link; in the background: it is looked for until it answers
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { Logger } from 'pino';
import type { RunnerClaims } from '../ownership/runner-claims.ts';
import type { RunnerClient } from '../placement/runner-client.ts';
import { OwnedRunner } from '../runners/owned-runner.ts';
import type { Runners } from '../runners/runners.ts';
import type { Clock } from '../time/clock.ts';
import type { LiveDrivers } from './live/live-drivers.ts';
import type { RunnerLink } from './runner-link.ts';

const LOOK_EVERY_MS = 250;

export interface RunnerFleetParts {
  runners: Runners;
  claims: RunnerClaims;
  drivers: Pick<LiveDrivers, 'load'>;
  /** The client of the runner on this machine. */
  local: RunnerClient;
  region: string;
  nodeId: string;
  clock: Clock;
  log: Logger;
  openLink: (runner: OwnedRunner, onReplaced: (id: string) => void) => RunnerLink;
  /** Called before the sandboxes of a runner are adopted. */
  beforeLoad: () => Promise<void>;
}

export class RunnerFleet implements AsyncDisposable {
  readonly #parts: RunnerFleetParts;
  readonly #stop = new AbortController();
  readonly #links = new Map<string, RunnerLink>();
  readonly #replaced = Promise.withResolvers<Error>();
  #looking: Promise<void> = Promise.resolve();

  constructor(parts: RunnerFleetParts) {
    this.#parts = parts;
  }

  /** Takes the runner of this machine, unless it is new and does not answer. */
  async open(): Promise<void> {
    const id = (await this.#identify()) ?? (await this.#parts.claims.findLocal(this.#parts.nodeId));
    if (id !== undefined) await this.#take(id);
  }

  /** Resolves after the first attempt to connect with the runners that are known, whatever its outcome. */
  async start(): Promise<void> {
    await Promise.all([...this.#links.values()].map((link) => link.start()));
    if (this.#links.size === 0) this.#looking = this.#look();
  }

  /** Resolves when another runner is in the place of the one of this machine: only a new start adopts its sandboxes. */
  get replaced(): Promise<Error> {
    return this.#replaced.promise;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#looking;
    await Promise.all([...this.#links.values()].map((link) => link[Symbol.asyncDispose]()));
  }

  /** Returns the id of the runner of this machine if it answers. */
  async #identify(): Promise<string | undefined> {
    try {
      return (await this.#parts.local.readRoster()).runner_id;
    } catch (error) {
      this.#parts.log.debug({ err: error }, 'the runner of this machine does not answer yet');
      return undefined;
    }
  }

  async #look(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted && this.#links.size === 0) {
      await delay(LOOK_EVERY_MS, undefined, { signal }).catch(() => undefined);
      if (signal.aborted) return;
      try {
        await this.open();
      } catch (error) {
        this.#parts.log.warn({ err: error }, 'the runner of this machine was not taken; control tries again');
      }
    }
    await this.start();
  }

  async #take(id: string): Promise<void> {
    const { runners, claims, drivers, local, region, nodeId, clock, openLink, beforeLoad } = this.#parts;
    await claims.takeLocal({ id, region, nodeId });
    const runner = new OwnedRunner(id, local, clock);
    runners.add(runner);
    await beforeLoad();
    await drivers.load(id);
    const onReplaced = (next: string): void => this.#replaced.resolve(replacedBy(next));
    this.#links.set(id, openLink(runner, onReplaced));
  }
}

function replacedBy(id: string): Error {
  return new Error(`the runner of this machine has been replaced by ${id}; control starts again`);
}
