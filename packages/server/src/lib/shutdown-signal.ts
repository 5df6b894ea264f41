/**
 * Resolves when this process is asked to stop: by SIGTERM or SIGINT, or because the supervisor that started it
 * is gone (its channel closes). A second signal ends the process at once.
 */
export function shutdownRequested(): Promise<string> {
  const asked = Promise.withResolvers<string>();
  let count = 0;
  const onSignal = (signal: string): void => {
    count += 1;
    if (count > 1) process.exit(130);
    asked.resolve(signal);
  };
  process.on('SIGTERM', onSignal);
  process.on('SIGINT', onSignal);
  process.once('disconnect', () => asked.resolve('the supervisor is gone'));
  return asked.promise;
}
