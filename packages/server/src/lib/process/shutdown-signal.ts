/**
 * A terminal signals every process of the service, and then the supervisor signals its roles: one request, sent twice.
 */
const SAME_WISH_MS = 2_000;

/**
 * Resolves with the reason when this process must stop: on SIGTERM or SIGINT, or because the supervisor that started it
 * has died (its channel closes). A later signal ends the process at once. A role ignores SIGINT, because its supervisor
 * stops the roles in order. A role also ignores SIGHUP, which the supervisor handles.
 */
export function shutdownRequested(): Promise<string> {
  const asked = Promise.withResolvers<string>();
  let firstAt: number | undefined;
  const onSignal = (signal: string): void => {
    firstAt ??= performance.now();
    if (performance.now() - firstAt > SAME_WISH_MS) process.exit(130);
    asked.resolve(signal);
  };
  process.on('SIGTERM', onSignal);
  process.on('SIGINT', process.send === undefined ? onSignal : () => undefined);
  if (process.send !== undefined) process.on('SIGHUP', () => undefined);
  process.once('disconnect', () => asked.resolve('the supervisor is gone'));
  return asked.promise;
}
