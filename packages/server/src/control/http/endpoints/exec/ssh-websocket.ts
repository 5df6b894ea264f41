import { AppError, SshEnd, SshQuery } from '@coppice/contract';
import { SshConnection } from '../../../streams/ssh-connection.ts';
import type { ClientMessage } from '../../../streams/client-message.ts';
import type { App } from '../../app.ts';
import { SandboxParams, TicketQuery } from '../../requests/params.ts';
import { beforeUpgrade, killedWhen, serveSocket, type SocketParts } from '../../access/serve-socket.ts';
import type { WebSocketPeer } from '../../access/web-socket-peer.ts';

const Query = TicketQuery.extend(SshQuery.shape);

/** One SSH connection for each socket. The caller is authenticated here, so the server in the guest asks for nothing. */
export function addSshWebSocket(app: App, parts: SocketParts): void {
  app.route({
    method: 'GET',
    url: '/v1/runs/:id/ssh/ws',
    config: {
      access: 'full',
      credentialInQuery: 'ticket',
      frames: { client: [], service: [SshEnd] },
    },
    schema: {
      operationId: 'sshWebSocket',
      summary: 'Connect to the SSH server of a sandbox over a WebSocket',
      description:
        'Binary messages are the bytes of one SSH connection in both directions; the server needs no authentication. The ' +
        'only text message is SshEnd, the last message of the service, which then closes the socket.',
      params: SandboxParams,
      querystring: Query,
    },
    ...beforeUpgrade(parts),
    wsHandler: (socket, request) => {
      const { ticket: _ticket, ...options } = request.query;
      const { id } = request.params;
      serveSocket(socket, {
        request,
        id,
        parts,
        run: async (peer, over, { runner, fill }) => {
          const filled = await fill(options);
          const connection = await SshConnection.open({
            ...parts,
            runner,
            log: request.log,
            id,
            options: filled,
          });
          await killedWhen(over, connection, () => carry(peer, connection));
        },
      });
    },
  });
}

async function carry(peer: WebSocketPeer, connection: SshConnection): Promise<void> {
  const take = async ({ isBinary, data }: ClientMessage): Promise<void> => {
    if (!isBinary)
      throw new AppError(
        'invalid_request',
        'text messages have no meaning here: send SSH as binary messages',
      );
    await connection.send(data);
  };
  peer.receive(take, () => connection.kill());
  for await (const bytes of connection) await peer.send(bytes);
  await peer.send(JSON.stringify({ type: 'ssh_closed' } satisfies SshEnd));
}
