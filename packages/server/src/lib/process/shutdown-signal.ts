/** A terminal signals every process of the service, and the supervisor then its roles: one wish, told twice. */
const SAME_WISH_MS = 2_000;

/**
 * Resolves when this process is asked to stop: by SIGTERM or SIGINT, or because the supervisor that started it
 * is gone (its channel closes). A later signal ends the process at once. A role leaves SIGINT to its supervisor, which
 * stops the roles in their order. A hang-up is the supervisor's to answer as well.
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
