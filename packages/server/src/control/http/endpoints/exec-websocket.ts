import { AppError, ExecRequest, OutputEncoding } from '@coppice/contract';
import type { FastifyRequest } from 'fastify';
import { z } from 'zod';
import { CommandInput } from '../../streams/command-input.ts';
import { sendOutput } from '../../streams/output-frames.ts';
import { RunningCommand } from '../../streams/running-command.ts';
import type { App } from '../app.ts';
import { SandboxParams } from '../params.ts';
import type { HttpParts } from '../parts.ts';
import { buildErrorFrame } from '../stream-error.ts';
import { CLOSE, closeCodeOf, WebSocketPeer } from '../web-socket-peer.ts';

type Parts = Pick<HttpParts, 'sandboxes' | 'runner' | 'openRequests'>;

const Query = z.strictObject({
  encoding: OutputEncoding.default('utf8'),
  command: ExecRequest.shape.command.optional(),
});

/**
 * One command for each socket:
 *
 *   client: ExecRequest ─► ExecInput …          (no first message with `?command=`)
 *   service:               ExecFrame … exit ─► close 1000
 *
 * A message that cannot be used is answered by an error frame and close 1008; the command is killed, as it is when the
 * client leaves.
 */
export function addExecWebSocket(app: App, parts: Parts): void {
  app.route({
    method: 'GET',
    url: '/v1/runs/:id/exec/ws',
    schema: {
      operationId: 'execWebSocket',
      summary: 'Run a command over a WebSocket, with standard input and signals',
      description:
        'The first text message is an ExecRequest (or `?command=` stands for it), later ones are ExecInput; the ' +
        'service sends ExecFrame. `exit` or `error` is the last, then the socket is closed.',
      params: SandboxParams,
      querystring: Query,
    },
    // Before the upgrade: a client learns by its status what is wrong.
    preHandler: async (request) => {
      await parts.sandboxes.getDriver(request.organizationId, request.params.id);
    },
    handler: async () => {
      throw new AppError('invalid_request', 'this endpoint is a WebSocket: send Upgrade: websocket');
    },
    wsHandler: (socket, request) => {
      const peer = new WebSocketPeer(socket);
      const { id } = request.params;
      void serve(peer, { request, id, query: request.query, parts });
    },
  });
}

interface Session {
  request: FastifyRequest;
  id: string;
  query: z.infer<typeof Query>;
  parts: Parts;
}

async function serve(peer: WebSocketPeer, session: Session): Promise<void> {
  const { request, id, query, parts } = session;
  const input = new CommandInput();
  const stop = (): void => input.fail(new Error('the client left, or the service restarts'));
  const over = AbortSignal.any([peer.left, parts.openRequests.draining]);
  over.addEventListener('abort', stop, { once: true });
  if (query.command !== undefined) input.begin(ExecRequest.parse({ command: query.command }));
  peer.receive(
    (message) => input.take(message),
    (error) => input.fail(error),
  );
  try {
    const driver = await parts.sandboxes.getDriver(request.organizationId, id);
    const run = async (): Promise<void> => runOver(peer, input, session);
    await parts.openRequests.limit(request.organizationId, () => driver.use(run));
    peer.close(CLOSE.normal);
  } catch (error) {
    const frame = buildErrorFrame(input.error ?? error, request, parts.openRequests);
    await peer.send(JSON.stringify(frame));
    peer.close(closeCodeOf(frame.error.code), frame.data);
  } finally {
    over.removeEventListener('abort', stop);
  }
}

async function runOver(
  peer: WebSocketPeer,
  input: CommandInput,
  { id, query, parts }: Session,
): Promise<void> {
  const request = await input.readRequest();
  const command = await RunningCommand.start({ runner: parts.runner, id, request, isInteractive: true });
  input.attach(command);
  await sendOutput(command, query.encoding, {
    left: peer.left,
    send: (frame) => peer.send(JSON.stringify(frame)),
  });
}
