/** Address of the credential proxy for guests. It never changes, because running processes keep their environment. */

/** Link-local, so that no route of any network diverts it from the sandbox's gateway. */
export const PROXY_ADDRESS = '169.254.169.254';
export const PROXY_PORT = 8014;

export function buildBaseUrl(port: number, service: string): string {
  return `http://${PROXY_ADDRESS}:${port}/proxy/${service}`;
}
