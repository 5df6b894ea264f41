import type { Guest } from '../../guest-table.ts';
import type { RequestName } from './judge-request.ts';
import { ProxyFault, toProxyFault } from './proxy-fault.ts';

/** What the audit log is told of one request, once. */
export class RequestNote {
  readonly #guest: Guest;
  readonly #name: RequestName;
  #isMade = false;

  constructor(guest: Guest, name: RequestName) {
    this.#guest = guest;
    this.#name = name;
  }

  get isMade(): boolean {
    return this.#isMade;
  }

  /** Resolves when it is durable. Throws the fault `unrecorded`. */
  async make(status: number): Promise<void> {
    this.#isMade = true;
    const ts = new Date().toISOString();
    try {
      await this.#guest.noteDurably({ event: 'credential.proxied', ts, data: { ...this.#name, status } });
    } catch (error) {
      throw new ProxyFault('unrecorded', { cause: error });
    }
  }

  /** Of a request that came to nothing. Resolves to what the guest is told: what it could have been told is not taken back. */
  async makeOf(fault: ProxyFault): Promise<ProxyFault> {
    if (fault.code === 'unrecorded') return fault;
    if (this.#isMade) return new ProxyFault('ended', { cause: fault });
    // `network.blocked` says it.
    if (fault.code === 'network_policy') return fault;
    try {
      await this.make(fault.status);
      return fault;
    } catch (error) {
      return toProxyFault(error);
    }
  }
}
