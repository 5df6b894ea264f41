/**
 * Starts runner and control, restarts a role that died, and stops both on request.
 *
 *   runner ready ──► control starts ──► control ready ──► address (and, once, API key and invitation) are shown
 *
 * A role that ends by itself is restarted after a pause, which doubles from 0.2 s to 5 s and is reset once the role has
 * served for 3 s. A role that ends before it was ever ready, or because of its configuration, ends the service: the
 * operator should see the reason, not a loop.
 */
import { fork, type ChildProcess } from 'node:child_process';
import { setTimeout as delay } from 'node:timers/promises';
import type { Logger } from 'pino';
import type { Config } from './config/config.ts';
import { buildCurlTarget } from './curl-hint.ts';
import { showFirstSandbox } from './first-sandbox.ts';
import { shutdownRequested } from './lib/process/shutdown-signal.ts';
import { buildTlsMessage, type TlsMessage } from './lib/tls/tls-handover.ts';
import { serverCertificate } from './lib/tls/tls-pair.ts';
import { TlsSource } from './lib/tls/tls-source.ts';
import { PROGRAM_FILE } from './lib/process/program-file.ts';
import type { RoleMessage } from './role-message.ts';
import { describeBootstrap, describeDashboard, describeRunner, showKey } from './start-report.ts';

const CONFIG_EXIT_CODE = 78;
const FIRST_PAUSE_MS = 200;
const LONGEST_PAUSE_MS = 5_000;
const STABLE_AFTER_MS = 3_000;
/** Longer than the time in which the roles let requests end. */
const STOP_TIMEOUT_MS = 40_000;

type RoleName = 'runner' | 'control';

interface RoleProcess {
  stop: () => Promise<void>;
  /** Sends to the current process, if there is one; each new process gets a greeting. */
  send: (message: TlsMessage) => void;
  /** Resolves with the exit code when the role will not be restarted. */
  finished: Promise<number>;
}

interface KeepOptions {
  role: RoleName;
  log: Logger;
  onMessage: (message: RoleMessage) => void;
  /** Sent to each new process before anything else. */
  greet?: () => TlsMessage | undefined;
}

function forkRole(role: RoleName): ChildProcess {
  return fork(PROGRAM_FILE, [role], {
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    env: process.env,
  });
}

/** Keeps one role running until `stop`. */
function keepRunning(options: KeepOptions): RoleProcess {
  const { role, log } = options;
  let stopping = false;
  let wasReady = false;
  let child: ChildProcess | undefined;
  const abort = new AbortController();
  const loop = async (): Promise<number> => {
    let pauseMs = FIRST_PAUSE_MS;
    for (;;) {
      let readyAt = Infinity;
      child = forkRole(role);
      const greeting = options.greet?.();
      if (greeting !== undefined) send(child, greeting);
      child.on('message', (message) => {
        wasReady = true;
        readyAt = Math.min(readyAt, performance.now());
        options.onMessage(message as RoleMessage);
      });
      const code = await exitOf(child);
      if (stopping || !wasReady || code === CONFIG_EXIT_CODE) return code;
      pauseMs =
        performance.now() - readyAt > STABLE_AFTER_MS
          ? FIRST_PAUSE_MS
          : Math.min(pauseMs * 2, LONGEST_PAUSE_MS);
      log.warn({ role, code, pause_ms: pauseMs }, 'a role ended and is restarted');
      await delay(pauseMs, undefined, { signal: abort.signal }).catch(() => undefined);
      if (stopping) return code;
    }
  };
  const finished = loop();
  return {
    finished,
    send: (message) => send(child, message),
    stop: async () => {
      stopping = true;
      abort.abort();
      child?.kill('SIGTERM');
      const timer = setTimeout(() => child?.kill('SIGKILL'), STOP_TIMEOUT_MS);
      await finished;
      clearTimeout(timer);
    },
  };
}

/** Sends a message. A process that ends before it receives the message is restarted and gets a greeting. */
function send(child: ChildProcess | undefined, message: TlsMessage): void {
  if (child?.connected === true) child.send(message, () => undefined);
}

function exitOf(child: ChildProcess): Promise<number> {
  const exited = Promise.withResolvers<number>();
  child.once('exit', (code) => exited.resolve(code ?? 1));
  child.once('error', () => exited.resolve(1));
  return exited.promise;
}

function say(text: string): void {
  process.stdout.write(`${text}\n`);
}

/**
 * Runs the service until a stop request. Exits with 78 if the configuration is invalid. SIGHUP reloads the certificate.
 */
export async function supervise(config: Config, log: Logger): Promise<void> {
  const tls = config.tls === undefined ? undefined : new TlsSource(config.tls, log);
  const asked = shutdownRequested();
  const runnerReady = Promise.withResolvers<undefined>();
  const roles: RoleProcess[] = [];
  roles.push(
    keepRunning({
      role: 'runner',
      log,
      onMessage: (message) => {
        if (message.type === 'control-ready') return;
        describeRunner(message).forEach(say);
        runnerReady.resolve(undefined);
      },
    }),
  );
  let control: RoleProcess | undefined;
  process.on('SIGHUP', () => {
    if (tls === undefined) log.info('SIGHUP: there is no certificate to reload');
    else if (tls.reload()) control?.send(buildTlsMessage(tls.pair));
  });
  const firstFailure = () => Promise.race(roles.map((role) => role.finished));
  const started = await Promise.race([
    runnerReady.promise.then(() => 'ready' as const),
    asked,
    firstFailure(),
  ]);
  if (started === 'ready') {
    control = keepRunning({
      role: 'control',
      log,
      greet: () => tls && buildTlsMessage(tls.pair),
      onMessage: (message) => onControlReady(message, { tls, log }),
    });
    roles.push(control);
  }
  const end = started === 'ready' ? await Promise.race([asked, firstFailure()]) : started;
  log.info({ reason: end }, 'service stops; sandboxes keep running');
  for (const role of roles.toReversed()) await role.stop();
  if (typeof end === 'number') process.exitCode = end;
}

/** The address by a name in the certificate, which browsers accept. */
function reachableAddress(address: string, tls: TlsSource | undefined): string {
  if (tls === undefined) return address;
  const served = { certificate: serverCertificate(tls.pair), certPath: tls.certPath };
  return buildCurlTarget(address, served).address;
}

function onControlReady(
  message: RoleMessage,
  { tls, log }: { tls: TlsSource | undefined; log: Logger },
): void {
  if (message.type !== 'control-ready') return;
  say(`coppice is listening on ${message.address}`);
  const { address, bootstrap } = message;
  describeBootstrap(bootstrap).forEach(say);
  if (message.hasDashboard) describeDashboard(reachableAddress(address, tls), bootstrap).forEach(say);
  const { apiKey, directory } = bootstrap;
  if (apiKey === undefined) return;
  const shownKey = showKey(apiKey, directory);
  showFirstSandbox({ address, apiKey, shownKey, say, tls }).catch((error: unknown) => {
    log.error({ err: error }, 'the first sandbox failed');
  });
}
