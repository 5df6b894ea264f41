import type { Logger } from 'pino';
import { ensureAuthority } from '../authority/authority.ts';
import { ControlIdentity } from '../authority/control-identity.ts';
import { joinRunner } from '../authority/join-runner.ts';
import type { Database } from '../db/database.ts';
import type { SecretBox } from '../secrets/secret-box.ts';
import { InternalListener } from './internal-listener.ts';

export interface InternalListenerParts {
  db: Database;
  secrets: SecretBox;
  /** Id of this control. */
  controlId: string;
  region: string;
  listen: { host: string; port: number };
  log: Logger;
}

/** Opens the internal listener, with a new key for this control. */
export async function startInternalListener(parts: InternalListenerParts): Promise<InternalListener> {
  const { db, secrets, controlId, region, listen, log } = parts;
  const identity = new ControlIdentity(await ensureAuthority(db, secrets), controlId);
  const listener = await InternalListener.listen({
    listen,
    credentials: () => identity.chain,
    join: (request) => joinRunner({ db, region, identity, log }, request),
    log,
  });
  log.info({ host: listen.host, port: listener.port }, 'control listens for runners and other controls');
  return listener;
}
