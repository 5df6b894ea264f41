/** Returns why a connection failed, on one line. The messages of OpenSSL name its source files; its reason says it all. */
export function describeTlsError(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const reason: unknown = Reflect.get(error, 'reason');
  return typeof reason === 'string' ? `TLS: ${reason}` : error.message;
}
