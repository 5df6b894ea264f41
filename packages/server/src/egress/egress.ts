/**
 * The role that everything of guests passes which the kernel does not forward: it judges connections and names, and adds
 * credentials. The runner starts it, tells it everything, and starts it again when it ends; it ends when the runner does.
 * It keeps nothing on disk, and logs nothing that the runner tells it.
 */
import { readFileSync } from 'node:fs';
import type { Logger } from 'pino';
import { readTrust, SYSTEM_CERTIFICATES } from '../lib/tls/trust.ts';
import { become } from '../lib/process/become.ts';
import { CredentialProxy } from './credentials/credential-proxy.ts';
import { openEgressService, type EgressService } from './egress-service.ts';
import { RunnerMessage, type EgressMessage, type EgressStart } from '../lib/protocol/egress-messages.ts';

const STOP_TIMEOUT_MS = 5000;
/** For listeners, resolvers, credentials and what else is open. */
const DESCRIPTORS_KEPT = 1024;
const DESCRIPTORS_PER_FLOW = 2;
const DESCRIPTORS_IF_UNKNOWN = 4096;

/** Resolves when the channel to the runner has closed. `uid`: who root is to become, user and group. */
export async function runEgressRole(uid: number, log: Logger): Promise<void> {
  if (process.send === undefined) throw new Error('the egress role is started by the runner only');
  const left = Promise.withResolvers<undefined>();
  process.once('disconnect', () => left.resolve(undefined));
  // Who stops the service stops the runner, which then leaves us.
  for (const signal of ['SIGINT', 'SIGHUP', 'SIGTERM'] as const) process.on(signal, () => undefined);
  const trust = readTrust(SYSTEM_CERTIFICATES);
  // Nothing is served as root, and all modules are loaded by now.
  if (process.getuid?.() === 0) become({ uid, gid: uid });
  const messages = new RunnerChannel();
  const start = await Promise.race([messages.start, left.promise]);
  if (start === undefined) return;
  const service = await openEgressService({
    start,
    send: tell,
    openCredentials: (parts) => CredentialProxy.listen({ ...parts, trust }),
    maxFlows: findMaxFlows(),
    log,
  });
  tell({ type: 'ready', ports: service.ports });
  messages.follow(service);
  log.info({ ports: service.ports }, 'egress process serves');
  await left.promise;
  setTimeout(() => process.exit(1), STOP_TIMEOUT_MS).unref();
  // Guests that nobody is left to tell of are cut off: the channel is what keeps their policies true.
  await service[Symbol.asyncDispose]();
}

/** A failure means that the channel is closing, and with it this process. */
function tell(message: EgressMessage): void {
  if (process.connected) process.send?.(message, () => undefined);
}

/** What comes before the service is open waits for it. */
class RunnerChannel {
  readonly #start = Promise.withResolvers<EgressStart>();
  #early: Exclude<RunnerMessage, EgressStart>[] = [];
  #service: EgressService | undefined;

  constructor() {
    process.on('message', (message) => this.#hear(parseMessage(message)));
  }

  get start(): Promise<EgressStart> {
    return this.#start.promise;
  }

  follow(service: EgressService): void {
    this.#service = service;
    for (const message of this.#early) service.hear(message);
    this.#early = [];
  }

  #hear(message: RunnerMessage): void {
    if (message.type === 'start') this.#start.resolve(message);
    else if (this.#service === undefined) this.#early.push(message);
    else this.#service.hear(message);
  }
}

/** Of what is wrong only the place is told: the rest may be a secret. */
function parseMessage(message: unknown): RunnerMessage {
  const parsed = RunnerMessage.safeParse(message);
  if (parsed.success) return parsed.data;
  throw new Error(`the runner sent what is no message (${parsed.error.issues[0]?.path.join('.') ?? ''})`);
}

/** By the limit of this process, which Node has raised to the highest that it may have. */
function findMaxFlows(): number {
  const limits = readFileSync('/proc/self/limits', 'utf8');
  const descriptors = Number(/^Max open files\s+(\d+)/mu.exec(limits)?.[1] ?? DESCRIPTORS_IF_UNKNOWN);
  return Math.max(Math.floor((descriptors - DESCRIPTORS_KEPT) / DESCRIPTORS_PER_FLOW), 1);
}
