/** Opens what connects a control with its runners and with other controls. */
import type { Logger } from 'pino';
import { formatAddress } from '../lib/protocol/join-protocol.ts';
import type { ControlConfig } from './control-config.ts';
import type { Database } from './db/database.ts';
import type { App } from './http/app.ts';
import { RequestForwarder } from './http/forwarding/request-forwarder.ts';
import { markPeer } from './http/requests/forwarded-request.ts';
import { InternalNetwork } from './internal/internal-network.ts';
import type { ControlLease } from './ownership/control-lease.ts';
import { findOwner, type Owner } from './ownership/owners.ts';
import { RunnerClaims, type JoinedRunner } from './ownership/runner-claims.ts';
import { RunnerClient } from './placement/runner-client.ts';
import { RunnerConnection } from './placement/runner-connection.ts';
import { Runners } from './runners/runners.ts';
import type { OpenedClient } from './sandbox/runner-fleet.ts';
import type { SecretBox } from './secrets/secret-box.ts';

interface NetworkBase {
  db: Database;
  secrets: SecretBox;
  ownership: ControlLease;
  log: Logger;
}

export interface Network {
  /** Id of this control. */
  control: string;
  /** The runner of this machine. */
  local: RunnerClient;
  claims: RunnerClaims;
  runners: Runners;
  /** Undefined, with the two below, for a control that is alone on its database, with the runner of its own machine. */
  internal: InternalNetwork | undefined;
  connect: ((runner: JoinedRunner) => OpenedClient) | undefined;
  requestForwarder: RequestForwarder | undefined;
}

export async function openNetwork(
  { runnerSocket: path, region, internalListen }: ControlConfig,
  { db, secrets, ownership, log }: NetworkBase,
  stack: AsyncDisposableStack,
): Promise<Network> {
  const local = new RunnerClient(stack.use(new RunnerConnection({ kind: 'socket', path }, log)));
  const claims = new RunnerClaims(db, ownership.id);
  const runners = new Runners((shape) => claims.findRoomElsewhere(shape));
  const own = { control: ownership.id, local, claims, runners };
  if (internalListen === undefined)
    return { ...own, internal: undefined, connect: undefined, requestForwarder: undefined };
  const internal = await InternalNetwork.open({ db, secrets, controlId: ownership.id, region, log });
  const tlsTo = (owner: Owner): object => internal.tlsTo(owner);
  const forwarder = new RequestForwarder({ findOwner: (id) => findOwner(db, id), tlsTo });
  const connect = (runner: JoinedRunner): OpenedClient => internal.connect(runner);
  return { ...own, internal, connect, requestForwarder: stack.use(forwarder) };
}

interface Listening {
  internal: InternalNetwork | undefined;
  ownership: ControlLease;
  app: App;
}

/** Listens for runners and other controls. These forward requests to this control once the returned function has been called. */
export async function listenInternally(
  { internalListen: listen, internalAddress }: ControlConfig,
  { internal, ownership, app }: Listening,
  stack: AsyncDisposableStack,
): Promise<() => Promise<void>> {
  if (listen === undefined || internal === undefined) return () => Promise.resolve();
  const listener = stack.use(
    await internal.listen(listen, {
      mark: markPeer,
      request: (request, response) => app.routing(request, response),
      upgrade: (request, socket, head) => void app.server.emit('upgrade', request, socket, head),
    }),
  );
  return () =>
    ownership.publish(internalAddress ?? formatAddress({ host: listen.host, port: listener.port }));
}
