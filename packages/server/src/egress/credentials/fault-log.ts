import type { Logger } from 'pino';
import { describeCause, type ProxyFault } from './request/proxy-fault.ts';

const EVERY_MS = 10_000;

interface Told {
  atMs: number;
  /** Number of faults since then that were not logged. */
  untold: number;
}

/**
 * Writes faults to the operator's log, each kind of each service at most once every 10 s, because a guest could fill
 * the log with them.
 */
export class FaultLog {
  readonly #log: Logger;
  /** Last log line of each service and kind, which bound its size. */
  readonly #told = new Map<string, Told>();

  constructor(log: Logger) {
    this.#log = log;
  }

  /** Logs a fault. It logs only the codes of errors: an error of the parser contains data that the service sent. */
  tell(vm: string, service: string, fault: ProxyFault): void {
    const line = { vm, service, fault: fault.code, cause: describeCause(fault) };
    if (fault.code === 'ended') {
      this.#log.debug(line, 'a request to a service ended early');
      return;
    }
    const key = `${service} ${fault.code}`;
    const told = this.#told.get(key);
    const nowMs = performance.now();
    if (told !== undefined && nowMs - told.atMs < EVERY_MS) {
      told.untold += 1;
      return;
    }
    this.#told.set(key, { atMs: nowMs, untold: 0 });
    this.#log.warn({ ...line, untold: told?.untold ?? 0 }, 'a request to a service failed');
  }
}
