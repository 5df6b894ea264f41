/** Chooses the network of this machine's guests: a filtered one, or none. */
import { AppError } from '@coppice/contract';
import type { Logger } from 'pino';
import { GuestNetwork, type GuestNetworkOptions } from './guest-network.ts';
import { NoNetwork } from './no-network.ts';
import { findNetworkObstacle } from './host/requirements.ts';
import type { VmNetwork } from './vm-network.ts';

/** `auto`: a network if this machine can filter it, else none. `on`: a network, or the start fails. */
export type NetworkMode = 'auto' | 'on' | 'off';

const SWITCHED_OFF = 'it is switched off by COPPICE_NETWORK=off';

/**
 * Opens the network. Guests go without one only for a known missing requirement. Any other fault, or an unusable
 * setting, makes the start fail: it must not look like a machine that has no network.
 */
export async function openNetwork(mode: NetworkMode, options: GuestNetworkOptions): Promise<VmNetwork> {
  const absence = mode === 'off' ? SWITCHED_OFF : await findNetworkObstacle(options);
  if (absence === undefined) return await GuestNetwork.open(options);
  if (mode === 'on') {
    throw new AppError(
      'invalid_request',
      `networkMode: is on, but sandboxes cannot have a network here: ${absence}`,
    );
  }
  warn(options.log, mode, absence);
  return new NoNetwork(absence);
}

function warn(log: Logger, mode: NetworkMode, reason: string): void {
  if (mode === 'off') log.info({ reason }, 'sandboxes have no network');
  else log.warn({ reason }, 'sandboxes have no network on this machine');
}
