/**
 * The host's proxy settings, as other programs read them. The proxy belongs to the operator, dials on its own, and must
 * itself keep untrusted requests out of private networks. The service still checks the addresses and names it can
 * resolve.
 */
export interface ProxySettings {
  httpProxy: string | undefined;
  httpsProxy: string | undefined;
  exceptions: readonly string[];
}

export function readProxySettings(environment: NodeJS.ProcessEnv): ProxySettings {
  const read = (name: string) => {
    const value = environment[name.toLowerCase()] ?? environment[name];
    return value === '' ? undefined : value;
  };
  const exceptions = (read('NO_PROXY') ?? '').split(',').map((item) => item.trim().toLowerCase());
  return {
    httpProxy: read('HTTP_PROXY'),
    httpsProxy: read('HTTPS_PROXY'),
    exceptions: exceptions.filter((item) => item !== ''),
  };
}

/**
 * Whether a URL goes through the proxy. Exceptions are `host`, `.domain`, `*.domain`, `host:port` and `*`, no CIDRs.
 */
export function isProxied(settings: ProxySettings, url: URL): boolean {
  const proxy = url.protocol === 'https:' ? settings.httpsProxy : settings.httpProxy;
  if (proxy === undefined) return false;
  const host = url.hostname.replaceAll(/[[\]]/gu, '');
  if (host === 'localhost' || host === '::1' || host.startsWith('127.')) return false;
  const port = url.port === '' ? (url.protocol === 'https:' ? '443' : '80') : url.port;
  return !settings.exceptions.some((exception) => {
    if (exception === '*' || exception === host || exception === `${host}:${port}`) return true;
    const domain = exception.replace(/^\*?\.?/u, '');
    return domain !== '' && host.endsWith(`.${domain}`);
  });
}
