/**
 * The addresses on this host that no policy can open, including the host's own. They are closed to guests, also when
 * the egress process would connect for them. A host may get new addresses while it runs.
 */
import {
  compileClosedAddresses,
  compileNetworkPolicy,
  judgeAddress,
  type BlockReason,
  type ClosedAddressesInput,
  type CompiledPolicy,
} from '@coppice/contract';
import { isIPv4 } from 'node:net';
import { networkInterfaces } from 'node:os';
import type { Logger } from 'pino';
import { parseIpv4, type AddressPlan } from '../addresses/address-plan.ts';
import type { Interface } from '../kernel/kernel-tools.ts';

const INTERVAL_MS = 2000;

export class ClosedHere {
  readonly input: ClosedAddressesInput;
  readonly #policy: CompiledPolicy;

  constructor(input: ClosedAddressesInput) {
    this.input = input;
    const anything = { version: 1, profile: null, default: 'allow', allow: [], deny: [] };
    this.#policy = compileNetworkPolicy(anything, compileClosedAddresses(input));
  }

  /** Returns why the address is closed; undefined for an address that a policy may open. */
  findReason(address: string): BlockReason | undefined {
    const verdict = judgeAddress(this.#policy, address);
    return verdict?.action === 'deny' ? verdict.reason : undefined;
  }
}

/** Lists the host's IPv4 addresses, also of interfaces without a carrier. The guest range stands for all in it. */
export function listOwnAddresses(interfaces: readonly Interface[], { guests }: AddressPlan): string[] {
  const addresses = interfaces
    .flatMap((link) => link.addr_info)
    .flatMap(({ family, local }) => (family === 'inet' && local !== undefined ? local : []))
    .filter((address) => parseIpv4(address) < guests.first || parseIpv4(address) > guests.last);
  return [guests.text, ...new Set(addresses)];
}

export interface AddressWatchOptions {
  closed: () => ClosedHere;
  /** Closes the address. Called repeatedly until the address is closed. */
  onNew: (address: string) => Promise<void>;
  log: Logger;
}

/** Checks every 2 s whether the host has an address that is not closed. */
export function watchOwnAddresses({ closed, onNew, log }: AddressWatchOptions): AsyncDisposable {
  let closing: Promise<void> | undefined;
  const look = (): void => {
    if (closing !== undefined) return;
    const found = listRunning().find((address) => closed().findReason(address) === undefined);
    if (found === undefined) return;
    closing = onNew(found)
      .catch((error: unknown) =>
        log.error({ err: error, address: found }, 'a new address of the host is open to guests'),
      )
      .finally(() => (closing = undefined));
  };
  const timer = setInterval(look, INTERVAL_MS);
  timer.unref();
  return {
    [Symbol.asyncDispose]: async () => {
      clearInterval(timer);
      await closing;
    },
  };
}

function listRunning(): string[] {
  return Object.values(networkInterfaces())
    .flatMap((addresses) => addresses ?? [])
    .map(({ address }) => address)
    .filter((address) => isIPv4(address));
}
