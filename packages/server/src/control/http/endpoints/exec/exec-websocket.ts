import { ExecFrame, ExecInput, ExecRequest, OutputEncoding } from '@coppice/contract';
import type { z } from 'zod';
import { AuditedCommand, type StartAuditedCommand } from '../../../streams/audited-command.ts';
import { CommandInput } from '../../../streams/command-input.ts';
import { sendOutput } from '../../../streams/output-frames.ts';
import type { App } from '../../app.ts';
import { SandboxParams, TicketQuery } from '../../requests/params.ts';
import {
  beforeUpgrade,
  killedWhen,
  serveSocket,
  type Fill,
  type SocketParts,
} from '../../access/serve-socket.ts';
import type { WebSocketPeer } from '../../access/web-socket-peer.ts';

const Query = TicketQuery.extend({
  encoding: OutputEncoding.default('utf8'),
  command: ExecRequest.shape.command.optional(),
});

/**
 * One command for each socket:
 *
 *   client: ExecRequest ─► ExecInput …          (no first message with `?command=`)
 *   service:               ExecFrame … exit ─► close 1000
 *
 * An unusable message is answered with an error frame and close 1008, and the command is killed. The command is also
 * killed when the client leaves.
 */
export function addExecWebSocket(app: App, parts: SocketParts): void {
  app.route({
    method: 'GET',
    url: '/v1/runs/:id/exec/ws',
    config: {
      access: 'full',
      credentialInQuery: 'ticket',
      frames: { client: [ExecRequest, ExecInput], service: [ExecFrame] },
    },
    schema: {
      operationId: 'execWebSocket',
      summary: 'Run a command over a WebSocket, with standard input and signals',
      description:
        'The first text message is an ExecRequest, unless `?command=` gives the command; later messages are ExecInput. ' +
        'The service sends ExecFrame. After `exit` or `error` it closes the socket.',
      params: SandboxParams,
      querystring: Query,
    },
    ...beforeUpgrade(parts),
    wsHandler: (socket, request) => {
      const { query } = request;
      const { id } = request.params;
      serveSocket(socket, {
        request,
        id,
        parts,
        run: (peer, over, guest) =>
          runCommand(peer, { over, id, query, log: request.log, ...parts, ...guest }),
      });
    },
  });
}

interface Run extends Omit<StartAuditedCommand, 'request' | 'isInteractive'> {
  over: AbortSignal;
  fill: Fill;
  query: z.infer<typeof Query>;
}

async function runCommand(peer: WebSocketPeer, { over, fill, query, ...parts }: Run): Promise<void> {
  const input = new CommandInput();
  const ending = { kill: () => input.fail(new Error('the client left, or the service restarts')) };
  if (query.command !== undefined) input.begin(ExecRequest.parse({ command: query.command }));
  peer.receive(
    (message) => input.take(message),
    (error) => input.fail(error),
  );
  await killedWhen(over, ending, async () => {
    const request = await fill(await input.readRequest());
    const command = await AuditedCommand.start({ ...parts, request, isInteractive: true });
    input.attach(command.command);
    await sendOutput(command, query.encoding, {
      left: peer.left,
      send: (frame) => peer.send(JSON.stringify(frame)),
    });
  });
}
