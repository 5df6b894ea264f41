/** The value of the first cookie of this name in a `Cookie` header, as it stands there. */
export function readCookie(header: string | undefined, name: string): string | undefined {
  const cookies = (header ?? '').split(';').map((cookie) => cookie.trim());
  return cookies.find((cookie) => cookie.startsWith(`${name}=`))?.slice(name.length + 1);
}
