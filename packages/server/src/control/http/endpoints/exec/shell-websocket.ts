import { ShellFrame, ShellQuery, ShellRun } from '@coppice/contract';
import { parseMessage } from '../../../streams/client-message.ts';
import { ShellSession } from '../../../streams/shell-session.ts';
import type { App } from '../../app.ts';
import { SandboxParams, TicketQuery } from '../../requests/params.ts';
import { beforeUpgrade, killedWhen, serveSocket, type SocketParts } from '../../access/serve-socket.ts';
import type { WebSocketPeer } from '../../access/web-socket-peer.ts';

const Query = TicketQuery.extend(ShellQuery.shape);

/**
 * One shell for each socket:
 *
 *   client:  shell_run …
 *   service: shell_out, shell_err … shell_exit of one command after the other … shell_closed ─► close 1000
 *
 * An unusable message is answered with an error frame and close 1008. It ends the shell and its foreground process, as
 * does a client that leaves.
 */
export function addShellWebSocket(app: App, parts: SocketParts): void {
  app.route({
    method: 'GET',
    url: '/v1/runs/:id/shell',
    config: {
      access: 'full',
      credentialInQuery: 'ticket',
      frames: { client: [ShellRun], service: [ShellFrame] },
    },
    schema: {
      operationId: 'shellWebSocket',
      summary: 'Open a shell over a WebSocket; it keeps its state from command to command',
      description:
        'One long-lived bash, or sh if the image has no bash. The client sends ShellRun as text messages; the service sends ' +
        'ShellFrame. Commands run in the order in which they are sent. After `shell_closed` or `error` the socket is closed.',
      params: SandboxParams,
      querystring: Query,
    },
    ...beforeUpgrade(parts),
    wsHandler: (socket, request) => {
      const { ticket: _, ...options } = request.query;
      const { id } = request.params;
      serveSocket(socket, {
        request,
        id,
        parts,
        run: async (peer, over, { runner, fill }) => {
          const filled = await fill(options);
          const shell = await ShellSession.open({ ...parts, runner, log: request.log, id, options: filled });
          await killedWhen(over, shell, () => carry(peer, shell));
        },
      });
    },
  });
}

async function carry(peer: WebSocketPeer, shell: ShellSession): Promise<void> {
  peer.receive(
    async (message) => shell.run(parseMessage(ShellRun, message)),
    () => shell.kill(),
  );
  for await (const frame of shell) await peer.send(JSON.stringify(frame));
}
