const SHOWN_MS = 1_500;

/** Adds a button to each block of code. Without a secure context browsers offer no clipboard, and pages no button. */
export function addCopyButtons(): void {
  if (navigator.clipboard === undefined) return;
  for (const figure of document.querySelectorAll('figure.code')) {
    const button = document.createElement('button');
    button.type = 'button';
    button.className = 'copy';
    button.textContent = 'Copy';
    button.addEventListener('click', () => void copy(figure, button));
    figure.querySelector('figcaption')?.append(button);
  }
}

async function copy(figure: Element, button: HTMLButtonElement): Promise<void> {
  try {
    await navigator.clipboard.writeText(figure.querySelector('code')?.textContent ?? '');
    button.textContent = 'Copied';
  } catch {
    button.textContent = 'Not allowed';
  }
  setTimeout(() => (button.textContent = 'Copy'), SHOWN_MS);
}
