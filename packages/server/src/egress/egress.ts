/**
 * The egress role handles all guest traffic that the kernel does not forward: it judges connections and names, and adds
 * credentials. The runner starts this process, sends it all state, and restarts it when it ends. The process ends with
 * the runner. It keeps nothing on disk, and never logs a message of the runner.
 */
import { readFileSync } from 'node:fs';
import type { Logger } from 'pino';
import { readTrust, SYSTEM_CERTIFICATES } from '../lib/tls/trust.ts';
import { become } from '../lib/process/become.ts';
import { CredentialProxy } from './credentials/credential-proxy.ts';
import { openEgressService, type EgressService } from './egress-service.ts';
import { OriginalDestinations } from './proxy/original-destination.ts';
import {
  HOSTCTL_DESCRIPTORS,
  RunnerMessage,
  type EgressMessage,
  type EgressStart,
} from '../lib/protocol/egress-messages.ts';

const STOP_TIMEOUT_MS = 5000;
/** Descriptors reserved for listeners, resolvers, credentials and other open files. */
const DESCRIPTORS_KEPT = 1024;
const DESCRIPTORS_PER_FLOW = 2;
const DESCRIPTORS_IF_UNKNOWN = 4096;

/**
 * Runs the egress role and resolves when the channel to the runner has closed. If the process is root, it changes to
 * `uid` as user and group. Throws if the runner did not start this process.
 */
export async function runEgressRole(uid: number, log: Logger): Promise<void> {
  if (process.send === undefined) throw new Error('only the runner can start the egress role');
  const left = Promise.withResolvers<undefined>();
  process.once('disconnect', () => left.resolve(undefined));
  // A signal that stops the service also stops the runner, which then closes the channel.
  for (const signal of ['SIGINT', 'SIGHUP', 'SIGTERM'] as const) process.on(signal, () => undefined);
  const trust = readTrust(SYSTEM_CERTIFICATES);
  // All modules are loaded by now, and the process must not serve as root.
  if (process.getuid?.() === 0) become({ uid, gid: uid });
  const destinations = OriginalDestinations.open(HOSTCTL_DESCRIPTORS);
  // The runner starts both again.
  void destinations.ended
    .then((reason) => log.error({ reason }, 'hostctl ended'))
    .then(() => process.exit(1));
  const messages = new RunnerChannel();
  const start = await Promise.race([messages.start, left.promise]);
  if (start === undefined) return;
  const service = await openEgressService({
    start,
    send: tell,
    openCredentials: (parts) => CredentialProxy.listen({ ...parts, trust }),
    maxFlows: findMaxFlows(),
    destinations,
    log,
  });
  tell({ type: 'ready', ports: service.ports });
  messages.follow(service);
  log.info({ ports: service.ports }, 'egress process serves');
  await left.promise;
  setTimeout(() => process.exit(1), STOP_TIMEOUT_MS).unref();
  // Without the channel the policies can no longer be updated, so all connections of guests are closed.
  await service[Symbol.asyncDispose]();
}

/**
 * Sends a message to the runner. A failure is ignored: it means that the channel closes, and this process then ends.
 */
function tell(message: EgressMessage): void {
  if (process.connected) process.send?.(message, () => undefined);
}

/** Receives the runner's messages and holds them back until the service is open. */
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

/** Parses a message of the runner. Its error names only the invalid field, because the values may be secrets. */
function parseMessage(message: unknown): RunnerMessage {
  const parsed = RunnerMessage.safeParse(message);
  if (parsed.success) return parsed.data;
  throw new Error(`the runner's data is no message (${parsed.error.issues[0]?.path.join('.') ?? ''})`);
}

/** Derives the number of flows from the limit of open files, which Node has raised to the hard limit. */
function findMaxFlows(): number {
  const limits = readFileSync('/proc/self/limits', 'utf8');
  const descriptors = Number(/^Max open files\s+(\d+)/mu.exec(limits)?.[1] ?? DESCRIPTORS_IF_UNKNOWN);
  return Math.max(Math.floor((descriptors - DESCRIPTORS_KEPT) / DESCRIPTORS_PER_FLOW), 1);
}
