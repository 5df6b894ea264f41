import type { ComponentChildren } from 'preact';
import { useEffect, useId, useRef } from 'preact/hooks';
import { Icon, type IconName } from './Icon.tsx';

export interface MenuItem {
  label: string;
  icon?: IconName;
  kind?: 'danger';
  isDisabled?: boolean;
  title?: string | undefined;
  onSelect: () => void;
}

/** A button with a menu below it: arrow keys move, Escape and a click elsewhere close it. */
export function Menu({
  label,
  hasText = false,
  button,
  items,
}: {
  /** Of the menu, and of a button without a text of its own. */
  label: string;
  hasText?: boolean;
  button: ComponentChildren;
  items: readonly MenuItem[];
}) {
  const id = useId();
  const list = useRef<HTMLDivElement>(null);
  const opener = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    const element = list.current;
    const place = (event: Event): void => {
      if ((event as ToggleEvent).newState === 'open') placeBelow(element, opener.current);
    };
    element?.addEventListener('toggle', place);
    return () => element?.removeEventListener('toggle', place);
  }, []);
  return (
    <>
      <button
        ref={opener}
        class="menu-button"
        type="button"
        aria-label={hasText ? undefined : label}
        title={hasText ? label : undefined}
        aria-haspopup="menu"
        popovertarget={id}
      >
        {button}
      </button>
      <div
        ref={list}
        id={id}
        class="menu"
        role="menu"
        aria-label={label}
        popover="auto"
        onKeyDown={moveFocus}
      >
        {items.map(({ label: text, icon, kind, isDisabled = false, title, onSelect }) => (
          <button
            key={text}
            type="button"
            role="menuitem"
            class={kind ?? ''}
            disabled={isDisabled}
            title={title}
            onClick={() => {
              list.current?.hidePopover();
              onSelect();
            }}
          >
            {icon !== undefined && <Icon name={icon} size={16} />}
            {text}
          </button>
        ))}
      </div>
    </>
  );
}

function placeBelow(menu: HTMLElement | null, opener: HTMLElement | null): void {
  if (menu === null || opener === null) return;
  const { bottom, top, left, right } = opener.getBoundingClientRect();
  const { offsetHeight: height, offsetWidth: width } = menu;
  const isLeft = left + width < window.innerWidth - 8;
  menu.style.left = `${Math.max(8, isLeft ? left : right - width)}px`;
  menu.style.top = `${bottom + height + 8 < window.innerHeight ? bottom + 4 : Math.max(8, top - height - 4)}px`;
  menu.querySelector<HTMLElement>('button:not(:disabled)')?.focus();
}

function moveFocus(event: KeyboardEvent): void {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step === undefined) return;
  event.preventDefault();
  const items = Array.from(
    (event.currentTarget as HTMLElement).querySelectorAll<HTMLElement>('button:not(:disabled)'),
  );
  const index = items.findIndex((item) => item === document.activeElement);
  items[(index + step + items.length) % items.length]?.focus();
}
