import { useEffect, useRef } from 'preact/hooks';

/** Links between the parts of one thing: each has its own address. */
export function Tabs({
  label,
  tabs,
  current,
}: {
  label: string;
  tabs: readonly { id: string; label: string; href: string }[];
  current: string;
}) {
  const list = useRef<HTMLElement>(null);
  useEffect(() => {
    // On a phone not all have room.
    const chosen = list.current?.querySelector<HTMLElement>('[aria-current]');
    chosen?.scrollIntoView({ block: 'nearest', inline: 'center' });
  }, [current]);
  return (
    <nav ref={list} class="tabs" aria-label={label}>
      {tabs.map(({ id, label: text, href }) => (
        <a key={id} href={href} aria-current={id === current ? 'page' : undefined}>
          {text}
        </a>
      ))}
    </nav>
  );
}
