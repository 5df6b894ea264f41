import type { ComponentChildren } from 'preact';
import { useTitle } from '../../ui/Page.tsx';

/** The frame of the pages before a sign-in. */
export function Outside({
  title,
  lead,
  children,
}: {
  title: string;
  lead?: string;
  children: ComponentChildren;
}) {
  useTitle(title);
  return (
    <main class="outside">
      <div class="outside-card">
        <img src="/icon.svg" alt="" width="40" height="40" />
        <h1>{title}</h1>
        {lead !== undefined && <p class="soft">{lead}</p>}
        {children}
      </div>
    </main>
  );
}
