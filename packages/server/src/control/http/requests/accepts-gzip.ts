/** Whether a client accepts gzip, by its header `Accept-Encoding`. Without the header it gets the plain content. */
export function acceptsGzip(header: string | string[] | undefined): boolean {
  const weights = new Map(
    [header ?? '']
      .flat()
      .join(',')
      .split(',')
      .map((part) => {
        const [name = '', ...parameters] = part.split(';').map((each) => each.trim().toLowerCase());
        const weight = parameters.find((each) => each.startsWith('q='))?.slice(2);
        return [name, weight === undefined ? 1 : Number(weight)] as const;
      }),
  );
  return (weights.get('gzip') ?? weights.get('*') ?? 0) > 0;
}
