import type { ButtonHTMLAttributes, ComponentChildren } from 'preact';
import { Icon, type IconName } from './Icon.tsx';

interface ButtonProps {
  children: ComponentChildren;
  icon?: IconName;
  kind?: 'primary' | 'plain' | 'danger' | 'quiet';
  type?: 'button' | 'submit';
  /** The action is under way: the button cannot be pressed, and says so. */
  isBusy?: boolean;
  isDisabled?: boolean;
  /** Shown as a tooltip, for example why it is disabled. */
  title?: string | undefined;
  onClick?: (event: MouseEvent) => void;
}

export function Button(props: ButtonProps) {
  const { children, icon, kind = 'plain', type = 'button', isBusy = false, isDisabled = false } = props;
  return (
    <button
      class={`button ${kind}`}
      type={type}
      disabled={isDisabled || isBusy}
      aria-busy={isBusy}
      title={props.title}
      onClick={props.onClick}
    >
      {isBusy ? <span class="spinner" aria-hidden="true" /> : icon && <Icon name={icon} size={16} />}
      <span>{children}</span>
    </button>
  );
}

interface IconButtonProps {
  icon: IconName;
  /** Read aloud, and shown as a tooltip. */
  label: string;
  isDisabled?: boolean;
  onClick?: (event: MouseEvent) => void;
  attributes?: ButtonHTMLAttributes;
}

export function IconButton({ icon, label, isDisabled = false, onClick, attributes }: IconButtonProps) {
  return (
    <button
      class="icon-button"
      type="button"
      aria-label={label}
      title={label}
      disabled={isDisabled}
      onClick={onClick}
      {...attributes}
    >
      <Icon name={icon} />
    </button>
  );
}

/** A link that looks like a button. */
export function ButtonLink({
  href,
  icon,
  kind = 'plain',
  children,
}: {
  href: string;
  icon?: IconName;
  kind?: 'primary' | 'plain' | 'quiet';
  children: ComponentChildren;
}) {
  return (
    <a class={`button ${kind}`} href={href}>
      {icon && <Icon name={icon} size={16} />}
      <span>{children}</span>
    </a>
  );
}
