import type { Guest } from '../../guest-table.ts';
import type { RequestName } from './judge-request.ts';
import { ProxyFault, toProxyFault } from './proxy-fault.ts';

/** The note of one request in the audit log. It is written once. */
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

  /** Writes the note and resolves when it is durable. Throws the fault `unrecorded`. */
  async make(status: number): Promise<void> {
    this.#isMade = true;
    const ts = new Date().toISOString();
    try {
      await this.#guest.noteDurably({ event: 'credential.proxied', ts, data: { ...this.#name, status } });
    } catch (error) {
      throw new ProxyFault('unrecorded', { cause: error });
    }
  }

  /**
   * Writes the note of a failed request. Resolves to the fault to answer the guest with. After an earlier note this is
   * `ended`: the noted answer is not replaced by another one.
   */
  async makeOf(fault: ProxyFault): Promise<ProxyFault> {
    if (fault.code === 'unrecorded') return fault;
    if (this.#isMade) return new ProxyFault('ended', { cause: fault });
    // The note `network.blocked` already records it.
    if (fault.code === 'network_policy') return fault;
    try {
      await this.make(fault.status);
      return fault;
    } catch (error) {
      return toProxyFault(error);
    }
  }
}
