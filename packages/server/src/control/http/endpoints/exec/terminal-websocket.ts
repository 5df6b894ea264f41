import { TerminalEnd, TerminalQuery, TerminalResize } from '@coppice/contract';
import { z } from 'zod';
import { parseMessage, type ClientMessage } from '../../../streams/client-message.ts';
import { TerminalSession } from '../../../streams/terminal-session.ts';
import type { App } from '../../app.ts';
import { SandboxParams, TicketQuery } from '../../requests/params.ts';
import { beforeUpgrade, killedWhen, serveSocket, type SocketParts } from '../../access/serve-socket.ts';
import type { WebSocketPeer } from '../../access/web-socket-peer.ts';

const Query = TicketQuery.extend({
  ...TerminalQuery.shape,
  token: z
    .string()
    .optional()
    .describe('The API key, for clients that cannot send headers. A ticket is safer.'),
});

/** One terminal for each socket. It is hung up when the client leaves, as when a modem loses its line. */
export function addTerminalWebSocket(app: App, parts: SocketParts): void {
  app.route({
    method: 'GET',
    url: '/v1/runs/:id/terminal',
    config: {
      access: 'full',
      credentialInQuery: 'ticket or key',
      frames: { client: [TerminalResize], service: [TerminalEnd] },
    },
    schema: {
      operationId: 'terminalWebSocket',
      summary: 'Open a terminal (PTY) over a WebSocket',
      description:
        'Binary messages are raw bytes in both directions. Text messages are JSON: the client sends TerminalResize; the ' +
        'service sends TerminalEnd as the last message, and then closes the socket.',
      params: SandboxParams,
      querystring: Query,
    },
    ...beforeUpgrade(parts),
    wsHandler: (socket, request) => {
      const { ticket: _ticket, token: _token, ...options } = request.query;
      const { id } = request.params;
      serveSocket(socket, {
        request,
        id,
        parts,
        run: async (peer, over, { runner, fill }) => {
          const filled = await fill(options);
          const terminal = await TerminalSession.open({
            ...parts,
            runner,
            log: request.log,
            id,
            options: filled,
          });
          await killedWhen(over, terminal, () => carry(peer, terminal));
        },
      });
    },
  });
}

async function carry(peer: WebSocketPeer, terminal: TerminalSession): Promise<void> {
  const take = async (message: ClientMessage): Promise<void> =>
    message.isBinary ? terminal.type(message.data) : terminal.resize(parseMessage(TerminalResize, message));
  peer.receive(take, () => terminal.kill());
  for await (const output of terminal) {
    if (output.type === 'output') await peer.send(output.data);
    else await peer.send(JSON.stringify(output));
  }
}
