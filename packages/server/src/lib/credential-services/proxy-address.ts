/** Where guests find the credential proxy: the same for ever, as running processes keep their environment. */

/** Link-local, so that no route of any network takes it away from the gateway of the sandbox. */
export const PROXY_ADDRESS = '169.254.169.254';
export const PROXY_PORT = 8014;

export function buildBaseUrl(port: number, service: string): string {
  return `http://${PROXY_ADDRESS}:${port}/proxy/${service}`;
}
