import type { ControlListenerOptions } from './control-listener.ts';
import { getJoinRecord } from './join-record.ts';
import { idDirectoryOf, openRunnerId } from './runner-id.ts';
import { openRunnerIdentity } from './runner-identity.ts';

/** Returns how this runner listens on the network. Throws NotJoinedError if it may not. */
export function openRunnerNetwork(
  dataDir: string,
  listen: ControlListenerOptions['listen'],
): Pick<ControlListenerOptions, 'listen' | 'credentials'> {
  const id = openRunnerId(idDirectoryOf(dataDir));
  const { authority: ca } = getJoinRecord(dataDir, id);
  const { cert, key } = openRunnerIdentity(dataDir, id);
  return { listen, credentials: { cert, key, ca } };
}
