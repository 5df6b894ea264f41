/** Which of the two networks this machine's guests get: a filtered one, or none. */
import { AppError } from '@coppice/contract';
import type { Logger } from 'pino';
import { GuestNetwork, type GuestNetworkOptions } from './guest-network.ts';
import { NoNetwork } from './no-network.ts';
import { findNetworkObstacle } from './host/requirements.ts';
import type { VmNetwork } from './vm-network.ts';

/** `auto`: a network if this machine can filter it, else none. `on`: a network or no start. */
export type NetworkMode = 'auto' | 'on' | 'off';

const SWITCHED_OFF = 'it is switched off by COPPICE_NETWORK=off';

/**
 * Only what is known to be missing leads to guests without a network. A fault on the way to one stops the start, and
 * so does a setting that cannot be used: neither may pass for a machine that has none.
 */
export async function openNetwork(mode: NetworkMode, options: GuestNetworkOptions): Promise<VmNetwork> {
  const absence = mode === 'off' ? SWITCHED_OFF : await findNetworkObstacle(options);
  if (absence === undefined) return await GuestNetwork.open(options);
  if (mode === 'on') {
    throw new AppError('invalid_request', `networkMode: is on, but sandboxes can have none here: ${absence}`);
  }
  warn(options.log, mode, absence);
  return new NoNetwork(absence);
}

function warn(log: Logger, mode: NetworkMode, reason: string): void {
  if (mode === 'off') log.info({ reason }, 'sandboxes have no network');
  else log.warn({ reason }, 'sandboxes have no network on this machine');
}
