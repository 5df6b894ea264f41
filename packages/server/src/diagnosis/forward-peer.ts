/**
 * One end of the forwarded connection. It runs in its own network namespace, which ends with this process. It obeys
 * calls over its IPC channel and exits when the channel closes, so a killed probe leaves no namespace.
 */
import { connect, createServer } from 'node:net';

export type PeerCall =
  | { call: 'listen'; port: number }
  | { call: 'connect'; host: string; port: number; timeoutMs: number };
/** `listening`, `connected`, or the reason of the failure. */
export type PeerAnswer = string;

function listen(port: number): Promise<PeerAnswer> {
  const answer = Promise.withResolvers<PeerAnswer>();
  const server = createServer((socket) => socket.on('error', () => socket.destroy()).end());
  server.once('error', (error) => answer.resolve(error.message));
  server.listen(port, '0.0.0.0', () => answer.resolve('listening'));
  return answer.promise;
}

function connectTo(host: string, port: number, timeoutMs: number): Promise<PeerAnswer> {
  const answer = Promise.withResolvers<PeerAnswer>();
  const socket = connect({ host, port, timeout: timeoutMs });
  socket.once('connect', () => answer.resolve('connected'));
  socket.once('timeout', () => answer.resolve('no answer'));
  socket.once('error', (error) => answer.resolve((error as NodeJS.ErrnoException).code ?? error.message));
  return answer.promise.finally(() => socket.destroy());
}

process.on('message', (message: PeerCall) => {
  const work =
    message.call === 'listen'
      ? listen(message.port)
      : connectTo(message.host, message.port, message.timeoutMs);
  work.then(
    (answer) => process.send?.(answer),
    (error: unknown) => process.send?.(String(error)),
  );
});
process.once('disconnect', () => process.exit());
process.send?.('ready');
