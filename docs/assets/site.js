// A wide table scrolls. The keyboard can scroll it only if it can have the focus. The buttons of a block of code are no
// landmark of the page.
function describeForKeyboards() {
  for (const box of document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0
  }
  for (const buttons of document.querySelectorAll(".md-code__nav:not([role])")) buttons.setAttribute("role", "none")
}

new MutationObserver(describeForKeyboards).observe(document.body, { childList: true, subtree: true })
addEventListener("resize", describeForKeyboards)
