import type { Logger } from 'pino';
import { describeCause, type ProxyFault } from './request/proxy-fault.ts';

const EVERY_MS = 10_000;

interface Told {
  atMs: number;
  /** Since then. */
  untold: number;
}

/** Faults in the operator's log: each kind of each service now and then, as a guest could fill the log with them. */
export class FaultLog {
  readonly #log: Logger;
  /** Bounded by services and kinds. */
  readonly #told = new Map<string, Told>();

  constructor(log: Logger) {
    this.#log = log;
  }

  /** Of errors only codes are told: an error of a parser holds what the service has sent. */
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
