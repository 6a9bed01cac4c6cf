; In place of threads.ll where there are none: nobody helps.

define i1 @borrow(ptr %pool) #0 {
  ret i1 false
}

define void @give_back(ptr %pool) #0 {
  ret void
}

define void @share(ptr %pool, ptr %section, i64 %tasks, ptr %events) #0 {
  unreachable
}

attributes #0 = { nounwind }
